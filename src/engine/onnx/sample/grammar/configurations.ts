/**
 * Where a text stands in a grammar: all the states it may be in, each with its stack. Equal ones are one object, and what follows
 * from one by a byte is remembered with it, so that a text mostly walks along what is known already.
 */
import { UnsupportedError } from "../../../../errors.ts";
import type { Automaton, State } from "./automaton.ts";

/** In place of a count: as many times more as one likes, or done. */
const FREE = -1;
/** In place of a count: many times more, whatever comes. */
const FAR = -2;

/** A state, how often it went round if it is a loop, and where its end goes on. */
interface Point {
  readonly id: number;
  readonly state: number;
  readonly count: number;
  readonly parent: Point | null;
  /** This point as far as the next token can tell: counts that no token can bring to a bound are not told apart. */
  readonly relaxed: Point;
}

/** See the file header. */
export interface Configuration {
  readonly points: readonly Point[];
  /** Whether the text may end here. */
  readonly canEnd: boolean;
  /** By byte: what follows, null where nothing can; absent while nobody asked. */
  readonly next: (Configuration | null | undefined)[];
  /** The same tokens can follow on both. */
  readonly relaxed: Configuration;
  /** What whoever walks here keeps with it. */
  mask: Uint32Array | undefined;
}

/** States that a text may be in at once, all that are passed without a byte included. */
const MAX_STATES = 8192;

/** Configurations kept before all are forgotten; those in use stay. */
const MAX_KEPT = 4000;

/** What a grammar is refused with that would take too long. */
export function tooAmbiguous(): UnsupportedError {
  return new UnsupportedError("The grammar can be read in too many ways at once; write it so that what was read tells where it stands");
}

/** The configurations of one grammar. */
export class Configurations {
  readonly #states: readonly State[];
  readonly #start: number;
  readonly #horizon: number;
  #points = new Map<string, Point>();
  #known = new Map<string, Configuration>();
  #nextId = 0;
  #work = 0;

  /** @param horizon - The most bytes of a token. */
  constructor({ states, start }: Automaton, horizon: number) {
    this.#states = states;
    this.#start = start;
    this.#horizon = horizon;
  }

  /** Before the first byte. */
  start(): Configuration {
    return this.#closure([this.#point(this.#start, 0, null)])!;
  }

  /** States visited so far; what is remembered costs none. */
  get work(): number {
    return this.#work;
  }

  /** After one byte more; null where the grammar has none such. */
  step(from: Configuration, byte: number): Configuration | null {
    const known = from.next[byte];
    if (known !== undefined) return known;
    const reached: Point[] = [];
    for (const { state, parent } of from.points) {
      const { edges } = this.#states[state] as Extract<State, { kind: "bytes" }>;
      for (const { first, last, target } of edges) if (byte >= first && byte <= last) reached.push(this.#point(target, 0, parent));
    }
    return (from.next[byte] = reached.length === 0 ? null : this.#closure(reached));
  }

  #point(state: number, count: number, parent: Point | null): Point {
    const key = `${state} ${count} ${parent?.id ?? ""}`;
    const known = this.#points.get(key);
    if (known !== undefined) return known;
    const seen = this.#relaxedCount(this.#states[state]!, count);
    const above = parent?.relaxed ?? null;
    const made: { -readonly [K in keyof Point]: Point[K] | undefined } = { id: this.#nextId++, state, count, parent, relaxed: undefined };
    made.relaxed = seen === count && above === parent ? (made as Point) : this.#point(state, seen, above);
    this.#points.set(key, made as Point);
    return made as Point;
  }

  #relaxedCount(state: State, count: number): number {
    if (state.kind !== "loop" || count < 0) return count;
    if (count >= state.min && count + this.#horizon <= state.max) return FREE;
    return count + this.#horizon < state.min ? FAR : count;
  }

  /** All that is reached without a byte. Null where that is nothing. */
  #closure(from: readonly Point[]): Configuration | null {
    const seen = new Set<Point>();
    const stack = [...from];
    const points: Point[] = [];
    let canEnd = false;
    for (let point = stack.pop(); point !== undefined; point = stack.pop()) {
      if (seen.has(point)) continue;
      seen.add(point);
      this.#work++;
      if (seen.size > MAX_STATES) throw tooAmbiguous();
      const { count, parent } = point;
      const state = this.#states[point.state]!;
      switch (state.kind) {
        case "bytes":
          if (state.edges.length > 0) points.push(point);
          break;
        case "either":
          for (const target of state.targets) stack.push(this.#point(target, 0, parent));
          break;
        case "call":
          stack.push(this.#point(state.start, 0, this.#point(state.next, 0, parent)));
          break;
        case "loop": {
          const more = count < 0 ? count : Math.min(count + 1, state.max === Infinity ? Math.max(state.min, 1) : state.max);
          if (count < 0 || count < state.max) stack.push(this.#point(state.body, 0, this.#point(point.state, more, parent)));
          if (count === FREE || count >= state.min) stack.push(this.#point(state.next, 0, parent));
          break;
        }
        case "end":
          if (parent === null) canEnd = true;
          else stack.push(parent);
          break;
      }
    }
    return points.length === 0 && !canEnd ? null : this.#configuration(points, canEnd);
  }

  #configuration(points: Point[], canEnd: boolean): Configuration {
    points.sort((a, b) => a.id - b.id);
    const key = `${canEnd ? "." : ""}${points.map((point) => point.id).join()}`;
    const known = this.#known.get(key);
    if (known !== undefined) return known;
    if (this.#known.size >= MAX_KEPT) {
      this.#known = new Map();
      this.#points = new Map();
    }
    const made: { -readonly [K in keyof Configuration]: Configuration[K] | undefined } = {
      points,
      canEnd,
      next: [],
      relaxed: undefined,
      mask: undefined,
    };
    this.#known.set(key, made as Configuration);
    const relaxed = [...new Set(points.map((point) => point.relaxed))];
    made.relaxed =
      relaxed.length === points.length && relaxed.every((point, at) => point === points[at])
        ? (made as Configuration)
        : this.#configuration(relaxed, canEnd);
    return made as Configuration;
  }
}
