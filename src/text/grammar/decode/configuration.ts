/** Positions of a text in a grammar. */
import type { InnerTokens } from "./inner-tokens.ts";
import type { TokenMask } from "./mask.ts";

/** Loop count in place of any count from `min` on that no single token can bring to `max`: the loop may repeat or end. */
export const FREE = -1;
/** Loop count in place of any count that no single token can bring to `min`: the loop must repeat. */
export const FAR = -2;

/** State of the automaton with its stack. Equal points are one object. */
export interface Point {
  readonly id: number;
  /** Number of the state. */
  readonly state: number;
  /** Number of finished repetitions if the state is a loop, {@link FREE} or {@link FAR}; 0 for other states. */
  readonly count: number;
  /** Point to continue at when the innermost call or loop body ends; null outside of calls and loops. */
  readonly parent: Point | null;
  /**
   * The point with {@link FREE} or {@link FAR} in place of every loop count that no single token can bring to a bound; itself without such a
   * count. The same tokens can follow both.
   */
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
  /**
   * Partition of the bytes by the edges of the states: the first byte of each range, in ascending order; all bytes of a range have the same
   * successor. Undefined before the first step. Most states have one edge, so ranges take less memory than one successor per byte.
   */
  starts: readonly number[] | undefined;
  /** Successor by range; null if no text continues with its bytes, undefined if not computed yet. */
  next: (Configuration | null | undefined)[];
  /**
   * Configuration of the relaxed points; itself if all points are relaxed. The same tokens can follow both, so texts that differ only in
   * loop counts share one mask.
   */
  readonly relaxed: Configuration;
  /** Tokens that may follow, cached by `maskOf`; undefined until computed. */
  mask: TokenMask | undefined;
  /**
   * Loop that most bytes enter, such as the inside of a JSON string: of all successors that their byte leads back to themselves, the one
   * with the most bytes. Cached by `maskOf`; null if no successor has enough bytes, undefined until computed.
   */
  mainLoop: Configuration | null | undefined;
  /** Tokens that end inside of the call, if the points are those of `Configurations.inside`. Cached by `maskOf`; undefined until computed. */
  inner: InnerTokens | undefined;
  /**
   * Nodes of the vocabulary's tree whose bytes do not lead from this configuration back to itself, in ascending order. Inside of a JSON
   * string, few bytes are such bytes, so a walk visits these nodes and adds all others at once. Cached by `maskOf`; null if too few bytes
   * lead back, undefined until computed.
   */
  leavingNodes: Int32Array | null | undefined;
}

/** Bytes from `first` to `last`, both included, with the same successor. */
export interface Successor {
  readonly first: number;
  readonly last: number;
  readonly next: Configuration;
}
