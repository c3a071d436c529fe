/**
 * Token masks: the tokens that may follow a configuration of a grammar.
 *
 * A token ends inside of the innermost call of a point, or beyond the end of that call. Tokens of the first kind depend on the state and not
 * on the stack, so they are computed once for a string, a number or any other rule that a grammar calls at many places. The others begin
 * with a text that ends the call; only the rest of their bytes is walked for each stack.
 *
 * @source Y. Dong et al., "XGrammar: Flexible and Efficient Structured Generation Engine for Large Language Models", 2024, for tokens that do
 *   not depend on the stack.
 */
import { getOrInsert } from "../../../base/util/values.ts";
import { tooAmbiguous, type Configuration, type Configurations, type Point } from "./configurations.ts";
import type { TokenTree, Vocabulary } from "./vocabulary.ts";

/** Min number of byte values that must lead from a configuration back to itself for their nodes to be added without a walk. */
const MIN_LOOP_BYTES = 32;

/** Max states that the computation of one mask may visit; this takes about a second. */
const MAX_WORK = 500_000;

/** Max stacks of a configuration whose innermost calls are walked separately. */
const MAX_STACKS = 64;
/** Max exits of all these calls together, in relation to the nodes of the vocabulary's tree. */
const MAX_EXIT_SHARE = 4;

/** Tokens that may follow. */
export interface TokenMask {
  /** A bit for each token: bit `id & 31` of word `id >>> 5`. */
  readonly words: Uint32Array;
  /** Whether most tokens may follow. */
  readonly isDense: boolean;
}

/** Tokens that end inside of the innermost call of a configuration. */
export interface InnerTokens {
  /** The tokens, as a mask or, if they are few, as a list of ids. */
  readonly tokens: Uint32Array | readonly number[];
  /** Nodes of the vocabulary's tree after which the call may end, in ascending order. */
  readonly exits: readonly number[];
}

/**
 * Returns the number of set bits of a word.
 *
 * @source H. S. Warren, "Hacker's Delight", 2002, 5-1.
 */
function bitCount(word: number): number {
  let sums = word - ((word >>> 1) & 0x55_55_55_55);
  sums = (sums & 0x33_33_33_33) + ((sums >>> 2) & 0x33_33_33_33);
  return Math.imul((sums + (sums >>> 4)) & 0x0f_0f_0f_0f, 0x01_01_01_01) >>> 24;
}

/** Returns the index of the first element that is at least `value`, or the length if all are smaller. */
function lowerBound(sorted: Int32Array, value: number): number {
  let [low, high] = [0, sorted.length];
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (sorted[middle]! < value) low = middle + 1;
    else high = middle;
  }
  return low;
}

/**
 * Walk over the vocabulary's tree that adds tokens to a mask. Nodes are in preorder, so a subtree is a range of nodes, and the walk skips
 * the subtree of a byte that cannot follow.
 */
class Walk {
  /** Tokens that were added, as in {@link TokenMask}. */
  readonly mask: Uint32Array;
  /**
   * Visited nodes after which the call may end, of a walk of inner tokens; null for other walks. A token that ends there is added only if
   * it can continue the call.
   */
  readonly exits: number[] | null;
  readonly #configurations: Configurations;
  readonly #vocabulary: Vocabulary;
  readonly #tree: TokenTree;
  readonly #maxWork: number;

  /**
   * @param maxWork - Value of `configurations.work` above which the walk fails.
   * @param scope - Tokens to add: `inner` = those that end inside of the innermost call, with the exits of the call; `whole` = all.
   */
  constructor(configurations: Configurations, vocabulary: Vocabulary, maxWork: number, scope: "inner" | "whole") {
    this.exits = scope === "inner" ? [] : null;
    this.#configurations = configurations;
    this.#vocabulary = vocabulary;
    this.#tree = vocabulary.tree;
    this.#maxWork = maxWork;
    this.mask = vocabulary.emptyMask();
  }

  /** Adds the tokens of the nodes from `first` up to `end`, excluding `end`. */
  addTokens(first: number, end: number): void {
    const { firstIds, ids } = this.#tree;
    for (let at = firstIds[first]!; at < firstIds[end]!; at++) {
      const id = ids[at]!;
      this.mask[id >>> 5]! |= 1 << (id & 31);
    }
  }

  /** Walks the nodes from `first` up to `end`, which are children of one node with their subtrees; `from` is the configuration before. */
  walk(first: number, end: number, from: Configuration): void {
    const { bytes, ends } = this.#tree;
    for (let node = first; node < end; node = ends[node]!) {
      if (from.loopExits) return this.#walkLoop(node, end, from, from.loopExits);
      const next = this.#configurations.step(from, bytes[node]!);
      if (next === null) continue;
      if (next === from && from.loopExits === undefined) {
        from.loopExits = this.#loopExitsOf(from);
        if (from.loopExits !== null) return this.#walkLoop(node, end, from, from.loopExits);
      }
      this.#enter(node, next);
    }
  }

  /** Adds a node and walks its subtree. */
  #enter(node: number, next: Configuration): void {
    if (next.points.length > 0 || this.exits === null) this.addTokens(node, node + 1);
    if (next.canEnd) this.exits?.push(node);
    if (this.#configurations.work > this.#maxWork) throw tooAmbiguous();
    this.walk(node + 1, this.#tree.ends[node]!, next);
  }

  /**
   * Walks like {@link walk} from a configuration to which all bytes lead back, except the bytes of the nodes `outside`: adds the ranges of
   * nodes between them without a step for each node.
   */
  #walkLoop(first: number, end: number, from: Configuration, outside: Int32Array): void {
    const { bytes, ends } = this.#tree;
    let at = lowerBound(outside, first);
    for (let node = first; node < end;) {
      while (at < outside.length && outside[at]! < node) at++;
      const stop = Math.min(outside[at] ?? end, end);
      this.addTokens(node, stop);
      if (from.canEnd && this.exits !== null) for (let passed = node; passed < stop; passed++) this.exits.push(passed);
      if (stop === end) return;
      const next = this.#configurations.step(from, bytes[stop]!);
      if (next !== null) this.#enter(stop, next);
      node = ends[stop]!;
    }
  }

  /**
   * Returns the nodes whose bytes do not lead from a configuration back to itself; null if too few bytes do. Inside of a JSON string, nearly
   * all do.
   */
  #loopExitsOf(from: Configuration): Int32Array | null {
    const staysAt = Array.from({ length: 256 }, (_, byte) => this.#configurations.step(from, byte) === from);
    return staysAt.filter(Boolean).length < MIN_LOOP_BYTES ? null : this.#vocabulary.nodesOutside(staysAt);
  }
}

/** Computes the tokens that end inside of the call of a configuration without parents. */
function innerTokens(inside: Configuration, { tree }: Vocabulary, walk: Walk): InnerTokens {
  walk.walk(0, tree.bytes.length, inside);
  const { mask } = walk;
  const ids: number[] = [];
  // A list takes more memory than a mask if it is longer than the mask's words.
  for (let at = 0; at < mask.length && ids.length <= mask.length; at++) {
    // Each iteration clears the lowest bit.
    for (let bits = mask[at]!; bits !== 0; bits &= bits - 1) ids.push(at * 32 + 31 - Math.clz32(bits & -bits));
  }
  return { tokens: ids.length > mask.length ? mask : ids, exits: walk.exits ?? [] };
}

/** Computes the mask of a configuration. One with very many stacks, as of an ambiguous grammar, is walked as a whole. */
function computeMask(configuration: Configuration, configurations: Configurations, vocabulary: Vocabulary): Uint32Array {
  const { tree } = vocabulary;
  const maxWork = configurations.work + MAX_WORK;
  const walk = new Walk(configurations, vocabulary, maxWork, "whole");
  const calls = innermostCalls(configuration, configurations, vocabulary, maxWork);
  if (calls === null) walk.walk(0, tree.bytes.length, configuration);
  else for (const [parent, inner] of calls) addCall(walk, parent, inner, configurations, tree);
  return walk.mask;
}

/** Returns the tokens inside of the innermost call of each stack, by the point after the call; null if there are too many. */
function innermostCalls(
  { points }: Configuration,
  configurations: Configurations,
  vocabulary: Vocabulary,
  maxWork: number,
): ReadonlyMap<Point | null, InnerTokens> | null {
  const byParent = new Map<Point | null, Point[]>();
  for (const point of points) getOrInsert(byParent, point.parent, () => []).push(point);
  if (byParent.size > MAX_STACKS) return null;
  const calls = new Map<Point | null, InnerTokens>();
  let exitCount = 0;
  for (const [parent, group] of byParent) {
    const inside = configurations.inside(group);
    inside.inner ??= innerTokens(inside, vocabulary, new Walk(configurations, vocabulary, maxWork, "inner"));
    calls.set(parent, inside.inner);
    exitCount += inside.inner.exits.length;
  }
  return exitCount > MAX_EXIT_SHARE * vocabulary.tree.bytes.length ? null : calls;
}

/** Adds the tokens that end inside of a call, and those that end it and continue at `parent`; null is the end of the text. */
function addCall(walk: Walk, parent: Point | null, { tokens, exits }: InnerTokens, configurations: Configurations, tree: TokenTree): void {
  const { mask } = walk;
  if (tokens instanceof Uint32Array) for (let at = 0; at < mask.length; at++) mask[at]! |= tokens[at]!;
  else for (const id of tokens) mask[id >>> 5]! |= 1 << (id & 31);
  const after = parent === null ? null : configurations.after(parent);
  // No text continues after the call.
  if (parent !== null && after === null) return;
  for (const node of exits) {
    walk.addTokens(node, node + 1);
    if (after !== null) walk.walk(node + 1, tree.ends[node]!, after);
  }
}

/**
 * Returns the tokens that may follow a configuration. Computed once per configuration; the result must not be modified.
 *
 * @throws UnsupportedError `E_UNSUPPORTED` if the grammar is too ambiguous.
 */
export function maskOf({ relaxed }: Configuration, configurations: Configurations, vocabulary: Vocabulary): TokenMask {
  if (relaxed.mask === undefined) {
    const words = computeMask(relaxed, configurations, vocabulary);
    let count = 0;
    for (let at = 0; at < words.length; at++) count += bitCount(words[at]!);
    relaxed.mask = { words, isDense: 2 * count > vocabulary.size };
  }
  return relaxed.mask;
}
