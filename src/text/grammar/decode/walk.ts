/** Walk over the tree of a vocabulary, which adds the tokens that a grammar allows to a mask. */
import type { Configuration, Point } from "./configuration.ts";
import { tooAmbiguous, type Configurations } from "./configurations.ts";
import { Equivalence } from "./equivalence.ts";
import type { InnerTokens } from "./inner-tokens.ts";
import type { TokenTree, Vocabulary } from "./vocabulary.ts";

/** Min number of byte values that must lead from a configuration back to itself for their nodes to be added without a walk. */
export const MIN_LOOP_BYTES = 32;

/** Siblings whose subtrees are compared for two configurations. */
interface ComparedSiblings {
  readonly end: number;
  readonly from: Configuration;
  /** Configuration of which the tokens are in the mask. */
  readonly base: Configuration;
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

/** Adds tokens to a mask. */
function addTo(mask: Uint32Array, tokens: InnerTokens["tokens"]): void {
  if (tokens instanceof Uint32Array) for (let at = 0; at < mask.length; at++) mask[at]! |= tokens[at]!;
  else for (const id of tokens) mask[id >>> 5]! |= 1 << (id & 31);
}

/**
 * Walk over the vocabulary's tree that adds tokens to a mask. Nodes are in preorder, so a subtree is a range of nodes, and the walk skips
 * the subtree of a byte that cannot follow.
 */
export class Walk {
  /** Tokens that were added: a bit for each token, as in `TokenMask`. */
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
  // Siblings on the path to the node of a walk, by their depth, in lists that all walks reuse: the configuration before the siblings, the
  // node after the last one's subtree, and the index of the next node in the configuration's `loopExits`, −1 if it is not known yet.
  readonly #froms: Configuration[] = [];
  readonly #siblingEnds: number[] = [];
  readonly #loopExits: number[] = [];

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

  /**
   * Adds the tokens that follow a configuration.
   *
   * @throws UnsupportedError `E_UNSUPPORTED` if the grammar is too ambiguous.
   */
  addAll(from: Configuration): void {
    this.#walk(0, this.#tree.bytes.length, from);
  }

  /**
   * Adds the tokens that end inside of a call, and those that end it and continue at `caller`; null is the end of the text.
   *
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
   * Adds the tokens that follow a configuration, given those that follow another: copies them, and walks only the nodes up to which the two
   * differ. A walk of inner tokens without tokens so far.
   *
   * @throws UnsupportedError `E_UNSUPPORTED` if the grammar is too ambiguous.
   */
  addLike(from: Configuration, base: Configuration, { tokens, exits }: InnerTokens): void {
    addTo(this.mask, tokens);
    const { bytes, ends } = this.#tree;
    const parents: ComparedSiblings[] = [];
    let siblings: ComparedSiblings | undefined = { end: bytes.length, from, base };
    const equivalence = new Equivalence(this.#configurations);
    /** Number of the base's exits that precede the node. */
    let passed = 0;
    const copyExits = (end: number): void => {
      for (; passed < exits.length && exits[passed]! < end; passed++) this.exits?.push(exits[passed]!);
    };
    const skipExits = (end: number): void => {
      while (passed < exits.length && exits[passed]! < end) passed++;
    };
    for (let node = 0; siblings !== undefined;) {
      if (node >= siblings.end) {
        siblings = parents.pop();
        continue;
      }
      const byte = bytes[node]!;
      const next = this.#configurations.step(siblings.from, byte);
      const baseNext = this.#configurations.step(siblings.base, byte);
      const end = ends[node]!;
      if (next === baseNext || (next !== null && baseNext !== null && equivalence.isCertain(next, baseNext))) {
        node = end;
        continue;
      }
      copyExits(node);
      if (next === null || baseNext === null || this.#bothLoop(next, baseNext, byte)) {
        if (baseNext !== null) this.#removeTokens(node, end);
        skipExits(end);
        if (next !== null) this.#enter(node, next);
        node = end;
        continue;
      }
      this.#removeTokens(node, node + 1);
      skipExits(node + 1);
      this.#visit(node, next);
      parents.push(siblings);
      siblings = { end, from: next, base: baseNext };
      node++;
    }
    copyExits(Infinity);
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

  /** Adds a node, after which a text is at `next`. */
  #visit(node: number, next: Configuration): void {
    if (next.points.length > 0 || this.exits === null) this.#addTokens(node, node + 1);
    if (next.canEnd) this.exits?.push(node);
    if (this.#configurations.work > this.#maxWork) throw tooAmbiguous();
  }

  /** Adds a node, after which a text is at `next`, and walks its subtree. */
  #enter(node: number, next: Configuration): void {
    this.#visit(node, next);
    this.#walk(node + 1, this.#tree.ends[node]!, next);
  }

  /** Walks the nodes from `first` up to `end`, which are children of one node with their subtrees; `from` is the configuration before. */
  #walk(first: number, end: number, from: Configuration): void {
    const { bytes, ends } = this.#tree;
    // A stack instead of recursion: a vocabulary may have tokens of thousands of bytes.
    const [froms, siblingEnds, loopExits] = [this.#froms, this.#siblingEnds, this.#loopExits];
    froms[0] = from;
    siblingEnds[0] = end;
    loopExits[0] = -1;
    for (let [node, depth] = [first, 0]; depth >= 0;) {
      const at = froms[depth]!;
      if (at.loopExits) node = this.#addLoop(node, depth, at.loopExits);
      if (node >= siblingEnds[depth]!) {
        depth--;
        continue;
      }
      const next = this.#configurations.step(at, bytes[node]!);
      if (next === null) {
        node = ends[node]!;
        continue;
      }
      if (next === at && next.loopExits === undefined) {
        next.loopExits = this.#loopExitsOf(next);
        if (next.loopExits !== null) continue;
      }
      this.#visit(node, next);
      node++;
      if (node >= ends[node - 1]!) continue;
      depth++;
      froms[depth] = next;
      siblingEnds[depth] = ends[node - 1]!;
      loopExits[depth] = -1;
    }
  }

  /**
   * Adds the nodes from `node` up to the next one whose byte does not lead from a configuration back to itself, without a step for each
   * node.
   *
   * @param depth - Depth of the siblings in the walk.
   * @param outside - All nodes whose bytes do not lead back.
   * @returns that node, or the end of the siblings.
   */
  #addLoop(node: number, depth: number, outside: Int32Array): number {
    const end = this.#siblingEnds[depth]!;
    let at = this.#loopExits[depth]!;
    if (at < 0) at = lowerBound(outside, node);
    while (at < outside.length && outside[at]! < node) at++;
    this.#loopExits[depth] = at;
    const stop = Math.min(outside[at] ?? end, end);
    // The walk may be at the end of the siblings.
    if (stop <= node) return node;
    this.#addTokens(node, stop);
    if (this.#froms[depth]!.canEnd && this.exits !== null) for (let passed = node; passed < stop; passed++) this.exits.push(passed);
    return stop;
  }

  /**
   * Returns the nodes whose bytes do not lead from a configuration back to itself; null if too few bytes do. Inside of a JSON string, nearly
   * all do.
   */
  #loopExitsOf(from: Configuration): Int32Array | null {
    const staysAt = Array.from({ length: 256 }, () => false);
    for (const { first, last, next } of this.#configurations.successors(from)) if (next === from) staysAt.fill(true, first, last + 1);
    return staysAt.filter(Boolean).length < MIN_LOOP_BYTES ? null : this.#vocabulary.nodesOutside(staysAt);
  }
}
