/**
 * Configurations of a text in a grammar: all automaton states that the text so far may be in, each with its stack of calls. Equal
 * configurations are one object, which caches its successor for each byte, so that most bytes of a text follow a cached transition.
 */
import { UnsupportedError } from "../../../base/errors.ts";
import type { Automaton, AutomatonState, ByteEdge } from "./automaton.ts";
import type { InnerTokens } from "./inner-tokens.ts";
import type { TokenMask } from "./mask.ts";

/** Loop count in place of any count from `min` on that no single token can bring to `max`: the loop may repeat or end. */
const FREE = -1;
/** Loop count in place of any count that no single token can bring to `min`: the loop must repeat. */
const FAR = -2;

/** State of the automaton with its stack. Equal points are one object. */
export interface Point {
  readonly id: number;
  /** Number of the state. */
  readonly state: number;
  /** Number of finished repetitions if the state is a loop, {@link FREE} or {@link FAR}; 0 for other states. */
  readonly count: number;
  /** Point to continue at when the innermost call or loop body ends; null outside of calls and loops. */
  readonly parent: Point | null;
  /** Equivalent point for the next token: merges loop counts that no single token can bring to a bound. */
  readonly relaxed: Point;
  /** Points with this parent, by count and state; null before the first. Valid only if `era` is the present one. */
  children: Map<number, Point> | null;
  /** Number of emptied caches when `children` was created. */
  era: number;
  /** Number of the last closure (see `Configurations`) that has visited the point; 0 before the first. */
  lastClosure: number;
}

/** Set of points that a text may be at. */
export interface Configuration {
  /** Points at which a byte can follow, by id. */
  readonly points: readonly Point[];
  /** Whether the text may end here. */
  readonly canEnd: boolean;
  /** Successor by byte; null if no text continues with the byte, absent if not computed yet. */
  readonly next: (Configuration | null | undefined)[];
  /**
   * Configuration of the relaxed points: the same tokens can follow it. Texts that differ only in loop counts share it, and with it the
   * mask.
   */
  readonly relaxed: Configuration;
  /** Tokens that may follow, cached by `maskOf`; undefined until computed. */
  mask: TokenMask | undefined;
  /**
   * Configuration to which most bytes lead, and from there back to itself, cached by `maskOf`; null if there is none, undefined until
   * computed.
   */
  base: Configuration | null | undefined;
  /** Tokens that end inside of the text that follows, if that text is a call, cached by `maskOf`; undefined until computed. */
  inner: InnerTokens | undefined;
  /**
   * Nodes of the vocabulary's tree whose bytes do not lead back to this configuration, in ascending order, cached by `maskOf`; null if too
   * few bytes lead back, undefined until computed.
   */
  loopExits: Int32Array | null | undefined;
}

/** Bytes from `first` to `last`, both included, with the same successor. */
export interface Successor {
  readonly first: number;
  readonly last: number;
  readonly next: Configuration;
}

/** Max states that a text may be in at once, including states that it passes without a byte. */
const MAX_STATES = 8192;

/** Max cached configurations. A full cache is emptied; configurations in use stay valid. */
const MAX_CACHED = 4000;

/** Returns the error for a grammar that would take too long to match. */
export function tooAmbiguous(): UnsupportedError {
  return new UnsupportedError("The grammar can be read in too many ways at once; write it so that what was read tells where it stands");
}

/** Returns equal keys for equal configurations. Most have one point, and a number as key. */
function keyOf(points: readonly Point[], canEnd: boolean): number | string {
  const [point, ...others] = points;
  if (point !== undefined && others.length === 0) return canEnd ? -1 - point.id : point.id;
  return `${canEnd ? "." : ""}${points.map(({ id }) => id).join()}`;
}

/** Configurations of one grammar, computed on demand. */
export class Configurations {
  readonly #states: readonly AutomatonState[];
  readonly #start: number;
  /** Max bytes of a token, which bounds how often a token can repeat a loop. */
  readonly #horizon: number;
  /** Points without a parent, by count and state. */
  #roots = new Map<number, Point>();
  /** Configurations by the ids of their points; see {@link keyOf}. */
  #known = new Map<number | string, Configuration>();
  #nextId = 0;
  /** Number of closures computed so far. */
  #closures = 0;
  /** Number of times that the caches were emptied. */
  #era = 0;
  /** See {@link work}. */
  #visitedStates = 0;

  /** @param horizon - Max bytes of a token. */
  constructor({ states, start }: Automaton, horizon: number) {
    this.#states = states;
    this.#start = start;
    this.#horizon = horizon;
  }

  /**
   * Returns the configuration before the first byte.
   *
   * @throws UnsupportedError `E_UNSUPPORTED` if the grammar has too many states at once.
   */
  start(): Configuration {
    return this.#closure([this.#point(this.#start, 0, null)])!;
  }

  /** Number of states visited so far; cached transitions add nothing. */
  get work(): number {
    return this.#visitedStates;
  }

  /**
   * Returns the configuration after one more byte; null if no text of the grammar continues with the byte.
   *
   * @throws UnsupportedError `E_UNSUPPORTED` if the grammar has too many states at once.
   */
  step(from: Configuration, byte: number): Configuration | null {
    const cached = from.next[byte];
    if (cached !== undefined) return cached;
    const reached: Point[] = [];
    for (const { state, parent } of from.points) {
      for (const { first, last, target } of this.#edges(state))
        if (byte >= first && byte <= last) reached.push(this.#point(target, 0, parent));
    }
    const next = reached.length === 0 ? null : this.#closure(reached);
    from.next[byte] = next;
    return next;
  }

  /**
   * Returns the successors of a configuration in ascending order of bytes, in as few ranges as possible.
   *
   * @throws UnsupportedError `E_UNSUPPORTED` if the grammar has too many states at once.
   */
  successors(from: Configuration): readonly Successor[] {
    // All bytes from one boundary to the next are in the same edges.
    const boundaries = new Uint8Array(257);
    for (const { state } of from.points) {
      for (const { first, last } of this.#edges(state)) {
        boundaries[first] = 1;
        boundaries[last + 1] = 1;
      }
    }
    const result: { first: number; last: number; next: Configuration }[] = [];
    for (let first = boundaries.indexOf(1); first >= 0 && first < 256;) {
      const next = this.step(from, first);
      const boundary = boundaries.indexOf(1, first + 1);
      const end = boundary < 0 ? 256 : boundary;
      // This fills the cache of `step`.
      for (let byte = first + 1; byte < end; byte++) from.next[byte] = next;
      const previous = result.at(-1);
      if (next !== null && previous?.next === next && previous.last + 1 === first) previous.last = end - 1;
      else if (next !== null) result.push({ first, last: end - 1, next });
      first = end;
    }
    return result;
  }

  /**
   * Returns the configuration of points without `caller` and its parents, null for all parents: the text ends where it would continue at
   * `caller`, a parent of each of the points.
   */
  inside(points: readonly Point[], caller: Point | null): Configuration {
    return this.#configuration([...new Set(points.map((point) => this.#insideOf(caller, point)))], false);
  }

  /** Returns a point without `caller` and its parents. */
  #insideOf(caller: Point | null, { state, count, parent }: Point): Point {
    return this.#point(state, count, parent === caller || parent === null ? null : this.#insideOf(caller, parent));
  }

  /**
   * Returns the configuration at which a text continues after the call or loop body inside of `parent`; null if none continues.
   *
   * @throws UnsupportedError `E_UNSUPPORTED` if the grammar has too many states at once.
   */
  after(parent: Point): Configuration | null {
    return this.#closure([parent]);
  }

  /** Returns the edges of the state of a configuration's point. */
  #edges(state: number): readonly ByteEdge[] {
    // A configuration keeps only points whose states have edges.
    return (this.#states[state] as Extract<AutomatonState, { kind: "bytes" }>).edges;
  }

  /** Returns the point with these properties, created at its first use. */
  #point(state: number, count: number, parent: Point | null): Point {
    const siblings = parent === null ? this.#roots : this.#childrenOf(parent);
    // Counts begin at FAR = -2.
    const key = (count + 2) * this.#states.length + state;
    const existing = siblings.get(key);
    if (existing !== undefined) return existing;
    const relaxedCount = this.#relaxedCount(this.#states[state]!, count);
    const relaxedParent = parent?.relaxed ?? null;
    // The field `relaxed` may refer to the point itself, so it is set after the point exists.
    const created: { -readonly [K in keyof Point]: Point[K] | undefined } = {
      id: this.#nextId++,
      state,
      count,
      parent,
      relaxed: undefined,
      children: null,
      era: this.#era,
      lastClosure: 0,
    };
    const isRelaxed = relaxedCount === count && relaxedParent === parent;
    created.relaxed = isRelaxed ? (created as Point) : this.#point(state, relaxedCount, relaxedParent);
    siblings.set(key, created as Point);
    return created as Point;
  }

  /** Returns the points with a parent, by count and state; forgets points from before the caches were last emptied. */
  #childrenOf(parent: Point): Map<number, Point> {
    if (parent.children === null || parent.era !== this.#era) {
      parent.children = new Map();
      parent.era = this.#era;
    }
    return parent.children;
  }

  /** Returns the count in place of a loop's count for the next token: {@link FREE}, {@link FAR}, or itself if a token can reach a bound. */
  #relaxedCount(state: AutomatonState, count: number): number {
    if (state.kind !== "loop" || count < 0) return count;
    if (count >= state.min && count + this.#horizon <= state.max) return FREE;
    return count + this.#horizon < state.min ? FAR : count;
  }

  /**
   * Returns the configuration of all points that are reached from some points without a byte; null if it has none and the text cannot end.
   */
  #closure(from: readonly Point[]): Configuration | null {
    this.#closures++;
    let visited = 0;
    const stack = [...from];
    const points: Point[] = [];
    let canEnd = false;
    for (let point = stack.pop(); point !== undefined; point = stack.pop()) {
      if (point.lastClosure === this.#closures) continue;
      point.lastClosure = this.#closures;
      this.#visitedStates++;
      visited++;
      if (visited > MAX_STATES) throw tooAmbiguous();
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
          // Without a maximum, counts from `min` on are equivalent, so the count stops there.
          const maxCount = state.max === Infinity ? Math.max(state.min, 1) : state.max;
          const nextCount = count === FREE || count === FAR ? count : Math.min(count + 1, maxCount);
          // FREE and FAR are negative, so both may repeat.
          if (count < state.max) stack.push(this.#point(state.body, 0, this.#point(point.state, nextCount, parent)));
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

  /** Returns the configuration of these points, created at its first use. */
  #configuration(points: Point[], canEnd: boolean): Configuration {
    points.sort((a, b) => a.id - b.id);
    const key = keyOf(points, canEnd);
    const existing = this.#known.get(key);
    if (existing !== undefined) return existing;
    if (this.#known.size >= MAX_CACHED) {
      this.#known = new Map();
      this.#roots = new Map();
      this.#era++;
    }
    const created: { -readonly [K in keyof Configuration]: Configuration[K] | undefined } = {
      points,
      canEnd,
      next: [],
      relaxed: undefined,
      mask: undefined,
      base: undefined,
      inner: undefined,
      loopExits: undefined,
    };
    this.#known.set(key, created as Configuration);
    const relaxedPoints = [...new Set(points.map((point) => point.relaxed))];
    const isRelaxed = relaxedPoints.length === points.length && relaxedPoints.every((point, at) => point === points[at]);
    created.relaxed = isRelaxed ? (created as Configuration) : this.#configuration(relaxedPoints, canEnd);
    return created as Configuration;
  }
}
