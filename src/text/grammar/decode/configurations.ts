/**
 * Configurations of a text in a grammar: all automaton states that the text so far may be in, each with its stack of calls. Equal
 * configurations are one object, which caches its successor for each range of bytes, so that most bytes of a text follow a cached transition.
 */
import { UnsupportedError } from "../../../base/errors.ts";
import type { Automaton, AutomatonState, ByteEdge } from "./automaton.ts";
import { FAR, FREE, type Configuration, type Point, type Successor } from "./configuration.ts";

/** Max states that a text may be in at once, including states that it passes without a byte. */
const MAX_STATES = 8192;

/** Max length of a list in which {@link lastAtMost} searches one element after the other. */
const MAX_SCANNED = 8;

/** Max cached configurations. A full cache is emptied; configurations in use stay valid. */
const MAX_CACHED = 4000;

/** Returns the error for a grammar that would take too long to match. */
export function tooAmbiguous(): UnsupportedError {
  return new UnsupportedError("The grammar can be read in too many ways at once; write it so that what was read tells where it stands");
}

/** Returns equal keys for equal configurations. Most have one point, and a number as key. */
function keyOf(points: readonly Point[], canEnd: boolean): number | string {
  const [point] = points;
  if (point !== undefined && points.length === 1) return canEnd ? -1 - point.id : point.id;
  return `${canEnd ? "." : ""}${points.map(({ id }) => id).join()}`;
}

/** Max points that are sorted by insertion, which needs no memory. */
const MAX_INSERTED = 64;

/** Sorts points by id. */
function sortById(points: Point[]): void {
  if (points.length > MAX_INSERTED) {
    points.sort((a, b) => a.id - b.id);
    return;
  }
  for (let end = 1; end < points.length; end++) {
    const point = points[end]!;
    let at = end;
    for (; at > 0 && points[at - 1]!.id > point.id; at--) points[at] = points[at - 1]!;
    points[at] = point;
  }
}

/** Returns the index of the last element of an ascending list that is at most `value`; −1 without such an element. */
function lastAtMost(sorted: readonly number[], value: number): number {
  let index = -1;
  if (sorted.length <= MAX_SCANNED) {
    while (index + 1 < sorted.length && sorted[index + 1]! <= value) index++;
    return index;
  }
  let end = sorted.length;
  while (index + 1 < end) {
    const middle = (index + 1 + end) >>> 1;
    if (sorted[middle]! <= value) index = middle;
    else end = middle;
  }
  return index;
}

/** Inserts a number into an ascending list without duplicates. */
function insertSorted(sorted: number[], value: number): void {
  let at = sorted.length;
  while (at > 0 && sorted[at - 1]! > value) at--;
  if (sorted[at - 1] === value) return;
  sorted.push(value);
  sorted.copyWithin(at + 1, at, sorted.length - 1);
  sorted[at] = value;
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
    const range = lastAtMost(this.#startsOf(from), byte);
    return range < 0 ? null : this.#nextOf(from, range, byte);
  }

  /** Returns the first bytes of the ranges of a configuration; see {@link Configuration.starts}. */
  #startsOf(from: Configuration): readonly number[] {
    if (from.starts !== undefined) return from.starts;
    const starts: number[] = [];
    for (const { state } of from.points) {
      for (const { first, last } of this.#edges(state)) {
        insertSorted(starts, first);
        insertSorted(starts, last + 1);
      }
    }
    // The copy has no reserved memory.
    from.starts = starts.slice();
    from.next = starts.map(() => undefined);
    return from.starts;
  }

  /** Returns the successor by a range, of which `byte` is any byte. */
  #nextOf(from: Configuration, range: number, byte: number): Configuration | null {
    const cached = from.next[range];
    if (cached !== undefined) return cached;
    const reached: Point[] = [];
    for (const { state, parent } of from.points)
      for (const { first, last, target } of this.#edges(state))
        if (byte >= first && byte <= last) reached.push(this.#point(target, 0, parent));
    const next = reached.length === 0 ? null : this.#closure(reached);
    from.next[range] = next;
    return next;
  }

  /** Returns an upper bound of the number of bytes that can follow a configuration. */
  maxByteCount({ points }: Configuration): number {
    let count = 0;
    for (const { state } of points) for (const { first, last } of this.#edges(state)) count += last - first + 1;
    return count;
  }

  /**
   * Returns the successors of a configuration in ascending order of bytes, in as few ranges as possible.
   *
   * @throws UnsupportedError `E_UNSUPPORTED` if the grammar has too many states at once.
   */
  successors(from: Configuration): readonly Successor[] {
    const result: { first: number; last: number; next: Configuration }[] = [];
    const starts = this.#startsOf(from);
    // No edge contains the last range.
    for (let range = 0; range + 1 < starts.length; range++) {
      const [first, last] = [starts[range]!, starts[range + 1]! - 1];
      const next = this.#nextOf(from, range, first);
      const previous = result.at(-1);
      if (next !== null && previous?.next === next && previous.last + 1 === first) previous.last = last;
      else if (next !== null) result.push({ first, last, next });
    }
    return result;
  }

  /**
   * Returns the configuration inside of a call: the points without `caller` and the parents around it. A text ends where it would continue
   * at `caller`.
   *
   * @param caller - Point after the call, a parent of each of the points; null keeps all parents.
   */
  inside(points: readonly Point[], caller: Point | null): Configuration {
    return this.#configuration([...new Set(points.map((point) => this.#insideOf(caller, point)))], false);
  }

  /** Returns a point without `caller` and the parents around it. */
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
   *
   * @param stack - The points; the list is empty afterwards.
   */
  #closure(stack: Point[]): Configuration | null {
    this.#closures++;
    let visited = 0;
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
    sortById(points);
    const key = keyOf(points, canEnd);
    const existing = this.#known.get(key);
    if (existing !== undefined) return existing;
    if (this.#known.size >= MAX_CACHED) {
      this.#known = new Map();
      this.#roots = new Map();
      this.#era++;
    }
    const created: { -readonly [K in keyof Configuration]: Configuration[K] | undefined } = {
      // The copy has no reserved memory.
      points: points.slice(),
      canEnd,
      starts: undefined,
      next: [],
      relaxed: undefined,
      mask: undefined,
      mainLoop: undefined,
      inner: undefined,
      leavingNodes: undefined,
    };
    this.#known.set(key, created as Configuration);
    const isRelaxed = points.every((point) => point.relaxed === point);
    created.relaxed = isRelaxed
      ? (created as Configuration)
      : this.#configuration([...new Set(points.map((point) => point.relaxed))], canEnd);
    return created as Configuration;
  }
}
