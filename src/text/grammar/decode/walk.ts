/** Walk over the tree of a vocabulary, which adds the tokens that a grammar allows to a mask. */
import type { Configuration, Point } from "./configuration.ts";
import { tooAmbiguous, type Configurations } from "./configurations.ts";
import { Equivalence } from "./equivalence.ts";
import type { InnerTokens } from "./inner-tokens.ts";
import type { TokenTree, Vocabulary } from "./vocabulary.ts";

/** Min number of byte values that lead from a configuration back to itself for {@link Configuration.leavingNodes} to be used. */
export const MIN_LOOP_BYTES = 32;

/** Siblings of the tree whose subtrees are compared for two configurations. */
interface ComparedSiblings {
  /** Node after the subtree of the last sibling. */
  readonly end: number;
  /** Configuration before the siblings of the tokens to add. */
  readonly from: Configuration;
  /** Configuration before the siblings of the tokens that are in the mask. */
  readonly reference: Configuration;
}

/** Siblings on the path from the start of a walk to its node. */
interface Level {
  /** Configuration before the siblings. */
  from: Configuration;
  /** Node after the subtree of the last sibling. */
  end: number;
  /** Index of the walk's node, or of the next one after it, in `from.leavingNodes`; −1 if it has not been searched yet. */
  leavingIndex: number;
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

/** Adds tokens, a mask or a list of ids, to a mask. */
function addTo(mask: Uint32Array, tokens: InnerTokens["tokens"]): void {
  if (tokens instanceof Uint32Array) {
    for (let at = 0; at < mask.length; at++) mask[at]! |= tokens[at]!;
  } else {
    for (const id of tokens) mask[id >>> 5]! |= 1 << (id & 31);
  }
}

/**
 * Walk over the vocabulary's tree that adds tokens to a mask. Nodes are in preorder, so a subtree is a range of nodes, and the walk skips
 * the subtree of a byte that cannot follow.
 *
 * A walk of scope `inner` finds the tokens that end inside of the innermost call of a configuration. A token may also go on after the end of
 * the call. These tokens depend on the caller, so the walk only records the nodes at which the call may end, the exits, and `addCall` of
 * another walk continues there.
 */
export class Walk {
  /** Tokens that were added: a bit for each token, as in `TokenMask`. */
  readonly mask: Uint32Array;
  /**
   * Visited nodes after which the call may end; null for scope `whole`. The tokens of such a node are in the mask only if the call may also
   * continue there.
   */
  readonly exits: number[] | null;
  readonly #configurations: Configurations;
  readonly #vocabulary: Vocabulary;
  readonly #tree: TokenTree;
  readonly #maxWork: number;
  /** Levels of a walk by depth. All walks use the same objects, because there are many short walks. */
  readonly #levels: Level[] = [];

  /**
   * @param maxWork - Value of `configurations.work` above which the walk fails.
   * @param scope - Tokens to add: `inner` = those that end inside of the innermost call, and the exits of the call; `whole` = all.
   */
  constructor(configurations: Configurations, vocabulary: Vocabulary, maxWork: number, scope: "inner" | "whole") {
    this.exits = scope === "inner" ? [] : null;
    this.#configurations = configurations;
    this.#vocabulary = vocabulary;
    this.#tree = vocabulary.tree;
    this.#maxWork = maxWork;
    this.mask = vocabulary.emptyMask();
  }

  /**
   * Adds the tokens that follow a configuration.
   *
   * @throws UnsupportedError `E_UNSUPPORTED` if the grammar is too ambiguous.
   */
  addAll(from: Configuration): void {
    this.#walk(0, this.#tree.bytes.length, from);
  }

  /**
   * Adds the tokens that end inside of a call, and those that end the call and continue after it.
   *
   * @param caller - Point after the call; null if the text ends after it.
   * @param inner - Tokens inside of the call, and its exits.
   * @throws UnsupportedError `E_UNSUPPORTED` if the grammar is too ambiguous.
   */
  addCall(caller: Point | null, { tokens, exits }: InnerTokens): void {
    addTo(this.mask, tokens);
    const after = caller === null ? null : this.#configurations.after(caller);
    // No text continues after the call.
    if (caller !== null && after === null) return;
    for (const node of exits) {
      if (after !== null) this.#enter(node, after);
      else if (this.exits === null) this.#addTokens(node, node + 1);
      else this.exits.push(node);
    }
  }

  /**
   * Adds the tokens and exits of a configuration: copies them from a similar configuration, the reference, and walks only the nodes at which
   * the two differ. The walk must be new and of scope `inner`.
   *
   * @param copied - Tokens and exits of the reference.
   * @throws UnsupportedError `E_UNSUPPORTED` if the grammar is too ambiguous.
   */
  addByDifference(from: Configuration, reference: Configuration, copied: InnerTokens): void {
    addTo(this.mask, copied.tokens);
    const { bytes, ends } = this.#tree;
    const equivalence = new Equivalence(this.#configurations);
    /** Number of the reference's exits that have been copied or dropped. */
    let exitIndex = 0;
    const copyExitsBefore = (end: number): void => {
      for (; exitIndex < copied.exits.length && copied.exits[exitIndex]! < end; exitIndex++) this.exits?.push(copied.exits[exitIndex]!);
    };
    const dropExitsBefore = (end: number): void => {
      while (exitIndex < copied.exits.length && copied.exits[exitIndex]! < end) exitIndex++;
    };
    const parents: ComparedSiblings[] = [];
    let siblings: ComparedSiblings | undefined = { end: bytes.length, from, reference };
    let node = 0;
    while (siblings !== undefined) {
      if (node >= siblings.end) {
        siblings = parents.pop();
        continue;
      }
      const byte = bytes[node]!;
      const subtreeEnd = ends[node]!;
      const next = this.#configurations.step(siblings.from, byte);
      const referenceNext = this.#configurations.step(siblings.reference, byte);
      if (next === referenceNext || (next !== null && referenceNext !== null && equivalence.isCertain(next, referenceNext))) {
        // The copied tokens and exits of the subtree are valid.
        node = subtreeEnd;
        continue;
      }
      copyExitsBefore(node);
      if (next !== null && referenceNext !== null && !this.#bothLoop(next, referenceNext, byte)) {
        // Replaces the node and compares its children.
        this.#removeTokens(node, node + 1);
        dropExitsBefore(node + 1);
        this.#visit(node, next);
        parents.push(siblings);
        siblings = { end: subtreeEnd, from: next, reference: referenceNext };
        node++;
        continue;
      }
      // Replaces the subtree.
      if (referenceNext !== null) this.#removeTokens(node, subtreeEnd);
      dropExitsBefore(subtreeEnd);
      if (next !== null) this.#enter(node, next);
      node = subtreeEnd;
    }
    copyExitsBefore(Infinity);
  }

  /** Whether a byte leads from each of two configurations back to itself, so that a walk of one alone takes less time than a comparison. */
  #bothLoop(a: Configuration, b: Configuration, byte: number): boolean {
    return this.#configurations.step(a, byte) === a && this.#configurations.step(b, byte) === b;
  }

  /** Adds the tokens of the nodes from `first` up to `end`, excluding `end`. */
  #addTokens(first: number, end: number): void {
    const { firstIds, ids } = this.#tree;
    for (let at = firstIds[first]!; at < firstIds[end]!; at++) {
      const id = ids[at]!;
      this.mask[id >>> 5]! |= 1 << (id & 31);
    }
  }

  /** Removes the tokens of the nodes from `first` up to `end`, excluding `end`. */
  #removeTokens(first: number, end: number): void {
    const { firstIds, ids } = this.#tree;
    for (let at = firstIds[first]!; at < firstIds[end]!; at++) {
      const id = ids[at]!;
      this.mask[id >>> 5]! &= ~(1 << (id & 31));
    }
  }

  /** Adds the tokens of a node, and the node as an exit; `next` is the configuration after its byte. */
  #visit(node: number, next: Configuration): void {
    if (next.points.length > 0 || this.exits === null) this.#addTokens(node, node + 1);
    if (next.canEnd) this.exits?.push(node);
    if (this.#configurations.work > this.#maxWork) throw tooAmbiguous();
  }

  /** Visits a node and its subtree; `next` is the configuration after its byte. */
  #enter(node: number, next: Configuration): void {
    this.#visit(node, next);
    this.#walk(node + 1, this.#tree.ends[node]!, next);
  }

  /**
   * Visits the nodes from `first` up to `end`, excluding `end`, that a configuration allows. They are siblings with their subtrees.
   *
   * @param from - Configuration before the siblings.
   */
  #walk(first: number, end: number, from: Configuration): void {
    const { bytes, ends } = this.#tree;
    // A list of levels instead of recursion: a vocabulary may have tokens of thousands of bytes.
    const levels = this.#levels;
    let depth = 0;
    this.#setLevel(depth, from, end);
    let node = first;
    while (depth >= 0) {
      const level = levels[depth]!;
      const { from: current } = level;
      if (current.leavingNodes) node = this.#addLoopNodes(node, level, current.leavingNodes);
      if (node >= level.end) {
        depth--;
        continue;
      }
      const next = this.#configurations.step(current, bytes[node]!);
      if (next === null) {
        node = ends[node]!;
        continue;
      }
      if (next === current && next.leavingNodes === undefined) {
        next.leavingNodes = this.#leavingNodesOf(next);
        // The next iteration adds the node with all others of the loop.
        if (next.leavingNodes !== null) continue;
      }
      this.#visit(node, next);
      const subtreeEnd = ends[node]!;
      node++;
      if (node < subtreeEnd) this.#setLevel(++depth, next, subtreeEnd);
    }
  }

  /** Sets the siblings at a depth. */
  #setLevel(depth: number, from: Configuration, end: number): void {
    const level = this.#levels[depth];
    if (level === undefined) {
      this.#levels[depth] = { from, end, leavingIndex: -1 };
      return;
    }
    level.from = from;
    level.end = end;
    level.leavingIndex = -1;
  }

  /**
   * Adds the nodes from `node` up to the next leaving node, without a step for each node. All their bytes lead from the level's
   * configuration back to itself.
   *
   * @param leavingNodes - Leaving nodes of the level's configuration.
   * @returns the leaving node, or the end of the siblings.
   */
  #addLoopNodes(node: number, level: Level, leavingNodes: Int32Array): number {
    let index = level.leavingIndex < 0 ? lowerBound(leavingNodes, node) : level.leavingIndex;
    while (index < leavingNodes.length && leavingNodes[index]! < node) index++;
    level.leavingIndex = index;
    const stop = Math.min(leavingNodes[index] ?? level.end, level.end);
    // `node` may be a leaving node itself, or the end of the siblings.
    if (stop <= node) return node;
    this.#addTokens(node, stop);
    if (level.from.canEnd && this.exits !== null) for (let exit = node; exit < stop; exit++) this.exits.push(exit);
    return stop;
  }

  /** Returns the leaving nodes of a configuration, see {@link Configuration.leavingNodes}. */
  #leavingNodesOf(from: Configuration): Int32Array | null {
    const staysAt = Array.from({ length: 256 }, () => false);
    for (const { first, last, next } of this.#configurations.successors(from)) if (next === from) staysAt.fill(true, first, last + 1);
    return staysAt.filter(Boolean).length < MIN_LOOP_BYTES ? null : this.#vocabulary.nodesOutside(staysAt);
  }
}
