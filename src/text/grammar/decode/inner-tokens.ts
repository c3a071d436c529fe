/**
 * Tokens that end inside of a call of a rule. They depend on the states inside of the call and not on the calls around it, so they are
 * computed once per set of states, and for strings once per vocabulary.
 *
 * In a string with excluded values, such as a key other than the names of a schema, most bytes enter the loop of arbitrary characters. If a
 * byte has the same successor in two configurations, both allow the same tokens with this first byte. So the mask of such a configuration
 * starts as a copy of the loop's mask, and only tokens with other successors are computed.
 *
 * @source Guidance AI, "Making Structured Outputs Go Brrr", 2025, for masks of strings that are computed once per vocabulary.
 */
import { getOrInsert } from "../../../base/util/values.ts";
import type { Configuration, Point } from "./configuration.ts";
import type { Configurations } from "./configurations.ts";
import type { Vocabulary } from "./vocabulary.ts";
import { countTokens } from "./token-count.ts";
import { MIN_LOOP_BYTES, Walk } from "./walk.ts";

/** Max innermost calls of a configuration that are walked separately. */
const MAX_CALLS = 64;
/** Max exits of all these calls together, in relation to the nodes of the vocabulary's tree. */
const MAX_EXIT_SHARE = 4;

/** Max calls around a state in which a main loop is searched. A key is in a call inside of the rule of keys. */
const MAX_LOOP_CALLS = 3;

/** Max configurations of a structure; a JSON string has about 20. */
const MAX_STRUCTURE = 64;

/** Tokens that end inside of a call. */
export interface InnerTokens {
  /** The tokens, as a mask or, if they are few, as a list of ids. */
  readonly tokens: Uint32Array | Int32Array;
  /** Nodes of the vocabulary's tree after which the call may end, in ascending order. */
  readonly exits: Int32Array;
}

/**
 * Returns the structure of a configuration as text: the transitions between all configurations that it reaches, numbered in the order of
 * their bytes. The same texts follow configurations of equal structure, even of different grammars. Null if there are more than
 * {@link MAX_STRUCTURE} configurations.
 */
function structureOf(start: Configuration, configurations: Configurations): string | null {
  const numbers = new Map([[start, 0]]);
  const parts: string[] = [];
  // The loop reaches configurations that are added meanwhile.
  for (const from of numbers.keys()) {
    parts.push(from.canEnd ? "end" : "", from.points.length > 0 ? ":" : ";");
    for (const { first, last, next } of configurations.successors(from)) {
      parts.push(`${first}-${last}>${getOrInsert(numbers, next, () => numbers.size)},`);
      if (numbers.size > MAX_STRUCTURE) return null;
    }
  }
  return parts.join("");
}

/** Returns the tokens and exits of a walk. */
function innerTokensOf({ mask, exits }: Walk): InnerTokens {
  const count = countTokens(mask);
  // A list takes more memory than a mask if it is longer than the mask's words.
  return { tokens: count > mask.length ? mask : idsOf(mask, count), exits: Int32Array.from(exits ?? []) };
}

/** Returns the ids of the tokens of a mask, of which there are `count`. */
function idsOf(mask: Uint32Array, count: number): Int32Array {
  const ids = new Int32Array(count);
  let found = 0;
  for (let at = 0; found < count; at++) {
    // Each iteration clears the lowest bit.
    for (let bits = mask[at]!; bits !== 0; bits &= bits - 1) ids[found++] = at * 32 + 31 - Math.clz32(bits & -bits);
  }
  return ids;
}

/** Computation of the tokens inside of calls for one mask, with bounded work. */
export class InnerTokenSearch {
  readonly #configurations: Configurations;
  readonly #vocabulary: Vocabulary;
  readonly #maxWork: number;
  /** Configurations whose tokens are being computed. */
  readonly #open = new Set<Configuration>();

  /** @param maxWork - Value of `configurations.work` above which the computation fails. */
  constructor(configurations: Configurations, vocabulary: Vocabulary, maxWork: number) {
    this.#configurations = configurations;
    this.#vocabulary = vocabulary;
    this.#maxWork = maxWork;
  }

  /**
   * Returns the tokens inside of the innermost calls that the points are in, by the point after the call, null for the end of the text; null
   * if there are too many calls or exits.
   *
   * @throws UnsupportedError `E_UNSUPPORTED` if the grammar is too ambiguous.
   */
  innermostCalls({ points }: Configuration): ReadonlyMap<Point | null, InnerTokens> | null {
    const byCaller = this.#byCaller(points);
    if (byCaller === null) return null;
    const calls = new Map<Point | null, InnerTokens>();
    let exitCount = 0;
    for (const [caller, group] of byCaller) {
      const inner = this.#tokensOf(this.#configurations.inside(group, caller));
      calls.set(caller, inner);
      exitCount += inner.exits.length;
    }
    return exitCount > MAX_EXIT_SHARE * this.#vocabulary.tree.bytes.length ? null : calls;
  }

  /** Groups points by the point after the call to walk separately, null for the end of the text; null if there are too many calls. */
  #byCaller(points: readonly Point[]): ReadonlyMap<Point | null, readonly Point[]> | null {
    const byParent = new Map<Point | null, Point[]>();
    for (const point of points) getOrInsert(byParent, point.parent, () => []).push(point);
    if (byParent.size > MAX_CALLS) return null;
    const byCaller = new Map<Point | null, Point[]>();
    for (const [parent, group] of byParent) getOrInsert(byCaller, this.#callerOf(group, parent), () => []).push(...group);
    return byCaller;
  }

  /**
   * Returns the point after the call to walk separately for points with this parent. It is the innermost call, except in a loop with a call
   * as its body, such as the characters of a string: there it is the call around the loop, because the innermost call ends after every
   * character.
   */
  #callerOf(group: readonly Point[], parent: Point | null): Point | null {
    let caller = parent;
    for (let calls = 0; calls < MAX_LOOP_CALLS; calls++) {
      const loop = this.#mainLoopOf(this.#configurations.inside(group, caller));
      if (loop !== null && !loop.canEnd) return caller;
      if (caller === null) break;
      caller = caller.parent;
    }
    return parent;
  }

  /** Returns the tokens that end inside of a call. Computed once per configuration. */
  #tokensOf(inside: Configuration): InnerTokens {
    if (inside.inner !== undefined) return inside.inner;
    // Calls in a cycle would need the tokens of each other.
    if (this.#open.has(inside)) return this.#walked(inside);
    this.#open.add(inside);
    inside.inner = this.#computed(inside);
    this.#open.delete(inside);
    return inside.inner;
  }

  /** Computes the tokens that end inside of a call in the way that takes the least time. */
  #computed(inside: Configuration): InnerTokens {
    const loop = this.#mainLoopOf(inside);
    if (loop === null) return this.#walked(inside);
    if (loop !== inside) return this.#copiedFrom(loop, inside);
    const callers = this.#byCaller(inside.points);
    const isInsideOfCalls = callers === null || [...callers.keys()].some((caller) => caller !== null);
    if (isInsideOfCalls) return this.#composed(inside);
    const structure = structureOf(inside, this.#configurations);
    return structure === null ? this.#walked(inside) : this.#vocabulary.innerTokens(structure, () => this.#walked(inside));
  }

  /** Returns the main loop of a configuration, see {@link Configuration.mainLoop}. Computed once per configuration. */
  #mainLoopOf(from: Configuration): Configuration | null {
    if (from.mainLoop === undefined) from.mainLoop = this.#findMainLoop(from);
    return from.mainLoop;
  }

  /** Searches the successors of a configuration for its main loop. */
  #findMainLoop(from: Configuration): Configuration | null {
    // This avoids the steps below for texts and numbers.
    if (this.#configurations.maxByteCount(from) < MIN_LOOP_BYTES) return null;
    const byteCounts = new Map<Configuration, number>();
    for (const { first, last, next } of this.#configurations.successors(from)) {
      // Only the first byte of the range is checked: the choice of the loop changes the time and not the tokens.
      if (this.#configurations.step(next, first) === next) byteCounts.set(next, (byteCounts.get(next) ?? 0) + last - first + 1);
    }
    const [best] = [...byteCounts].sort(([, a], [, b]) => b - a);
    if (best === undefined) return null;
    const [loop, byteCount] = best;
    return byteCount < MIN_LOOP_BYTES ? null : loop;
  }

  /** Computes the tokens by a walk over the vocabulary. */
  #walked(inside: Configuration): InnerTokens {
    const walk = this.#newWalk();
    walk.addAll(inside);
    return innerTokensOf(walk);
  }

  /** Computes the tokens by copying them from the main loop of the configuration. */
  #copiedFrom(loop: Configuration, inside: Configuration): InnerTokens {
    const walk = this.#newWalk();
    walk.addByDifference(inside, loop, this.#tokensOf(loop));
    return innerTokensOf(walk);
  }

  /** Computes the tokens from those of the calls that the points are in. */
  #composed(inside: Configuration): InnerTokens {
    const calls = this.innermostCalls(inside);
    if (calls === null) return this.#walked(inside);
    const walk = this.#newWalk();
    for (const [caller, inner] of calls) walk.addCall(caller, inner);
    const { tokens, exits } = innerTokensOf(walk);
    // Several calls may have the same exits.
    return { tokens, exits: Int32Array.from(new Set(exits)).sort() };
  }

  /** Creates a walk that adds inner tokens. */
  #newWalk(): Walk {
    return new Walk(this.#configurations, this.#vocabulary, this.#maxWork, "inner");
  }
}
