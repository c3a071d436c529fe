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
  /**
   * Partition of the bytes by the edges of the states: the first byte of each range, in ascending order; all bytes of a range have the same
   * successor. Undefined before the first step. Most states have one edge, so ranges take less memory than one successor per byte.
   */
  starts: readonly number[] | undefined;
  /** Successor by range; null if no text continues with its bytes, undefined if not computed yet. */
  next: (Configuration | null | undefined)[];
  /**
   * Configuration of the relaxed points: the same tokens can follow it. Texts that differ only in loop counts share it, and with it the
   * mask.
   */
  readonly relaxed: Configuration;
  /** Tokens that may follow, cached by `maskOf`; undefined until computed. */
  mask: TokenMask | undefined;
  /**
   * Loop that most bytes enter: the configuration after the byte, whose own successor by that byte is itself, as for the characters of a
   * string. Cached by `maskOf`; null without such a loop, undefined until computed.
   */
  base: Configuration | null | undefined;
  /** Tokens that end inside of the call, if the points are those of `Configurations.inside`. Cached by `maskOf`; undefined until computed. */
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
