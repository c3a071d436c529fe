/**
 * Prefix cache: keys and values of prompt prefixes, in blocks of {@link BLOCK_TOKENS} tokens.
 *
 * Each block is a child of the block with the tokens before it, so a found block implies all earlier ones. Each policy and each cache salt
 * has its own tree for as long as the tree has blocks: salts are often random and never used again. Only keys and values computed by
 * prefill are kept: their bits do not depend on the request or on the cut into pieces, while a decoded token's differ from a prefilled
 * token's in the last place.
 */

/** Tokens per block. */
export const BLOCK_TOKENS = 16;

interface Block {
  readonly parent: Node;
  readonly key: string;
  /** Keys and values of the block's tokens in all layers. */
  readonly data: Float32Array;
  readonly children: Map<string, Block>;
}

interface Tree {
  readonly owner: object;
  readonly salt: string | null;
  readonly children: Map<string, Block>;
}

type Node = Block | Tree;

/** Prefix cache with least-recently-used eviction. */
export class PrefixCache {
  readonly #maxBytes: number;
  readonly #trees = new Map<object, Map<string | null, Tree>>();
  /** Blocks from the least to the most recently used. A block always comes before its parent, so the first block is a leaf. */
  readonly #byAge = new Set<Block>();
  #bytes = 0;

  /** @param maxBytes - Max bytes of all blocks together; 0 disables the cache. */
  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  /** Whether the cache keeps anything. */
  get isEnabled(): boolean {
    return this.#maxBytes > 0;
  }

  /** Bytes that all blocks hold. */
  get bytes(): number {
    return this.#bytes;
  }

  /** Number of trees. */
  get trees(): number {
    return [...this.#trees.values()].reduce((sum, { size }) => sum + size, 0);
  }

  /**
   * Returns the cached blocks that a prompt begins with, in order. Never returns the whole prompt: its last token has to be computed.
   *
   * @param owner - Policy of the request.
   */
  find(owner: object, salt: string | null, prompt: Int32Array): Float32Array[] {
    const path: Block[] = [];
    let node: Node | undefined = this.#trees.get(owner)?.get(salt);
    for (let start = 0; node && start + BLOCK_TOKENS < prompt.length; start += BLOCK_TOKENS) {
      const block: Block | undefined = node.children.get(keyOf(prompt, start));
      if (block) path.push(block);
      node = block;
    }
    this.#touch(path);
    return path.map((block) => block.data);
  }

  /**
   * Stores the whole blocks among the first `computed` tokens of a prompt, and evicts the least recently used blocks beyond the limit.
   *
   * @param owner - Policy of the request.
   * @param read - Returns the keys and values of the block that starts at a token; called only for blocks that are not stored yet.
   */
  keep(owner: object, salt: string | null, prompt: Int32Array, computed: number, read: (start: number) => Float32Array): void {
    if (!this.isEnabled) return;
    const path: Block[] = [];
    const tree = this.#trees.get(owner)?.get(salt) ?? { owner, salt, children: new Map() };
    let node: Node = tree;
    for (let start = 0; start + BLOCK_TOKENS <= Math.min(computed, prompt.length); start += BLOCK_TOKENS) {
      const key = keyOf(prompt, start);
      let block: Block | undefined = node.children.get(key);
      if (!block) {
        if (tree.children.size === 0) this.#plant(tree);
        block = { parent: node, key, data: read(start), children: new Map() };
        node.children.set(key, block);
        this.#bytes += block.data.byteLength;
      }
      path.push(block);
      node = block;
    }
    this.#touch(path);
    for (const oldest of this.#byAge) {
      if (this.#bytes <= this.#maxBytes) break;
      this.#drop(oldest);
    }
  }

  /** Removes all blocks of a policy. */
  forget(owner: object): void {
    const trees = this.#trees.get(owner);
    this.#trees.delete(owner);
    const dropAll = (node: Node) => {
      for (const block of node.children.values()) {
        dropAll(block);
        this.#drop(block);
      }
    };
    trees?.forEach(dropAll);
  }

  #plant(tree: Tree): void {
    let trees = this.#trees.get(tree.owner);
    if (!trees) this.#trees.set(tree.owner, (trees = new Map()));
    trees.set(tree.salt, tree);
  }

  #fell({ owner, salt }: Tree): void {
    const trees = this.#trees.get(owner);
    trees?.delete(salt);
    if (trees?.size === 0) this.#trees.delete(owner);
  }

  #touch(path: readonly Block[]): void {
    for (const block of path.toReversed()) {
      this.#byAge.delete(block);
      this.#byAge.add(block);
    }
  }

  #drop(block: Block): void {
    const { parent } = block;
    parent.children.delete(block.key);
    if ("owner" in parent && parent.children.size === 0) this.#fell(parent);
    this.#byAge.delete(block);
    this.#bytes -= block.data.byteLength;
  }
}

function keyOf(prompt: Int32Array, start: number): string {
  return prompt.subarray(start, start + BLOCK_TOKENS).join();
}
