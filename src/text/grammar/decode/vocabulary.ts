/** Vocabulary as a trie over bytes, in flat arrays so that a walk reads memory in order. */

import { Lru } from "../../../base/util/lru.ts";
import { getOrInsert } from "../../../base/util/values.ts";
import type { InnerTokens } from "./inner-tokens.ts";

/** Trie of tokens. Nodes are in preorder: each node precedes its descendants. The root has no node. */
export interface TokenTree {
  /** Byte that leads to each node. */
  readonly bytes: Uint8Array;
  /** Index of the first node after each node's subtree. */
  readonly ends: Int32Array;
  /** Start of each node's tokens in `ids`; one more entry than there are nodes. */
  readonly firstIds: Int32Array;
  /** Ids of the tokens, in the order of their nodes. */
  readonly ids: Int32Array;
}

/** Token that is text. */
interface Token {
  readonly id: number;
  readonly bytes: Uint8Array;
}

/** Builds the trie of tokens, none of which is empty. */
function buildTree(tokens: readonly Token[]): TokenTree {
  const sorted = [...tokens].sort((a, b) => Buffer.compare(a.bytes, b.bytes));
  const bytes: number[] = [];
  const ends: number[] = [];
  const firstIds: number[] = [];
  const ids: number[] = [];
  /** Nodes of the previous token. */
  const path: number[] = [];
  let previous = new Uint8Array(0);
  // In sorted order, nodes that the next token does not share are complete.
  const completeFrom = (depth: number): void => {
    for (const node of path.splice(depth)) ends[node] = bytes.length;
  };
  for (const token of sorted) {
    let shared = 0;
    while (shared < previous.length && previous[shared] === token.bytes[shared]) shared++;
    completeFrom(shared);
    for (let depth = shared; depth < token.bytes.length; depth++) {
      path.push(bytes.length);
      bytes.push(token.bytes[depth]!);
      ends.push(0);
      firstIds.push(ids.length);
    }
    ids.push(token.id);
    previous = token.bytes as Uint8Array<ArrayBuffer>;
  }
  completeFrom(0);
  firstIds.push(ids.length);
  return {
    bytes: Uint8Array.from(bytes),
    ends: Int32Array.from(ends),
    firstIds: Int32Array.from(firstIds),
    ids: Int32Array.from(ids),
  };
}

/** Max bytes of the cache of tokens inside of calls. The entry of a JSON string has about 20 KB at 150,000 tokens. */
const MAX_INNER_BYTES = 16 * 1024 * 1024;

/** Max sets of bytes whose nodes are cached; a full cache is emptied. */
const MAX_SETS = 64;

/** Tokens that a grammar may choose from. */
export class Vocabulary {
  /** Number of token ids; every id is below it. */
  readonly size: number;
  /** Max bytes of a token. */
  readonly maxTokenBytes: number;
  /** All tokens that are text. */
  readonly tree: TokenTree;
  readonly #bytes: readonly (Uint8Array | null)[];
  /** Results of {@link nodesOutside} by the set of bytes, as a text of 256 digits. */
  readonly #nodesOutside = new Map<string, Int32Array>();
  /** Results of {@link innerTokens} by the structure of the call; the weights are bytes. */
  readonly #innerTokens = new Lru<string, InnerTokens>({ maxWeight: MAX_INNER_BYTES });

  /** @param tokens - By id, the exact bytes of each token; null or empty for a token that is not text. */
  constructor(tokens: readonly (Uint8Array | null)[]) {
    this.size = tokens.length;
    this.#bytes = tokens;
    const textTokens = tokens.flatMap((bytes, id) => (bytes === null || bytes.length === 0 ? [] : [{ id, bytes }]));
    this.maxTokenBytes = textTokens.reduce((max, { bytes }) => Math.max(max, bytes.length), 1);
    this.tree = buildTree(textTokens);
  }

  /** Returns the bytes of a token; null if the token is not text. */
  bytesOf(id: number): Uint8Array | null {
    const bytes = this.#bytes[id];
    return bytes === undefined || bytes === null || bytes.length === 0 ? null : bytes;
  }

  /** Returns a mask without tokens, with one bit per token id. */
  emptyMask(): Uint32Array {
    return new Uint32Array((this.size + 31) >>> 5);
  }

  /**
   * Returns the nodes of the tree whose byte is not in a set, in ascending order; cached, because the strings of all grammars have the same
   * sets.
   *
   * @param isWithin - Whether each byte value is in the set, 256 entries.
   */
  nodesOutside(isWithin: readonly boolean[]): Int32Array {
    const key = isWithin.map((isIn) => (isIn ? "1" : "0")).join("");
    if (this.#nodesOutside.size >= MAX_SETS && !this.#nodesOutside.has(key)) this.#nodesOutside.clear();
    return getOrInsert(this.#nodesOutside, key, () => {
      const nodes: number[] = [];
      this.tree.bytes.forEach((byte, node) => {
        if (isWithin[byte] !== true) nodes.push(node);
      });
      return Int32Array.from(nodes);
    });
  }

  /**
   * Returns the tokens inside of a call, computed at its first use: the strings of all grammars have the same structures.
   *
   * @param structure - Text that is equal for calls that match the same texts.
   */
  innerTokens(structure: string, compute: () => InnerTokens): InnerTokens {
    const known = this.#innerTokens.get(structure);
    if (known !== undefined) return known;
    const computed = compute();
    const { tokens, exits } = computed;
    this.#innerTokens.set(structure, computed, structure.length + 4 * (tokens.length + exits.length));
    return computed;
  }
}
