import { getOrInsert, getOrThrow } from "../../../base/util/values.ts";
/**
 * Prefix cache: keys and values of prompt prefixes, in blocks of {@link BLOCK_TOKENS} tokens.
 *
 * Each block is a child of the block with the tokens before it, so a found block implies all earlier ones. Each policy and each cache salt
 * has its own tree for as long as the tree has blocks: salts are often random and never used again. Only keys and values computed by
 * prefill are kept: on the processor, their bits do not depend on the request or on the cut into pieces, while a decoded token's differ
 * from a prefilled token's in the last place.
 *
 * The memory of the keys and values belongs to the place that computes them. Blocks hold it: on the processor, each block has memory of its
 * own; on a device, all blocks of a prompt hold the tensors of the whole prompt.
 */

/** Tokens per block. */
export const BLOCK_TOKENS = 16;

/** Memory with keys and values of a place. */
export interface KeysMemory {
  readonly bytes: number;
  /** Holds the memory, until {@link release}. */
  hold(): void;
  release(): void;
}

/** Keys and values of one block. */
export interface StoredBlock {
  /** Memory with the keys and values, held while a block of the cache is in it. */
  readonly memory: KeysMemory;
}

/** Cached block: its position in the tree, and its keys and values. */
interface Block<B> {
  readonly parent: Node<B>;
  readonly key: string;
  stored: B;
  readonly children: Map<string, Block<B>>;
}

/** Root of the blocks of one policy and cache salt. */
interface Tree<B> {
  readonly owner: object;
  readonly salt: string | null;
  readonly children: Map<string, Block<B>>;
}

type Node<B> = Block<B> | Tree<B>;

/** Prefix cache with least-recently-used eviction. */
export class PrefixCache<B extends StoredBlock = StoredBlock> {
  readonly #maxBytes: number;
  readonly #trees = new Map<object, Map<string | null, Tree<B>>>();
  /** Blocks from the least to the most recently used. A block always comes before its parent, so the first block is a leaf. */
  readonly #byAge = new Set<Block<B>>();
  /** Number of blocks in each memory. */
  readonly #blocks = new Map<KeysMemory, number>();
  #bytes = 0;

  /** @param maxBytes - Max bytes of all memory that blocks hold; 0 disables the cache. */
  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  /** Whether the cache keeps anything. */
  get isEnabled(): boolean {
    return this.#maxBytes > 0;
  }

  /** Bytes of all memory that blocks hold. */
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
  find(owner: object, salt: string | null, prompt: Int32Array): B[] {
    const path: Block<B>[] = [];
    let node: Node<B> | undefined = this.#trees.get(owner)?.get(salt);
    for (let start = 0; node && start + BLOCK_TOKENS < prompt.length; start += BLOCK_TOKENS) {
      const block: Block<B> | undefined = node.children.get(keyOf(prompt, start));
      if (block) path.push(block);
      node = block;
    }
    this.#touch(path);
    return path.map((block) => block.stored);
  }

  /**
   * Stores the whole blocks among the first `computed` tokens of a prompt, and evicts the least recently used blocks beyond the limit. A
   * block whose memory exceeds the limit is not stored, and neither are the blocks after it.
   *
   * @param owner - Policy of the request.
   * @param store - Returns the keys and values of the block that starts at a token. `known` are its stored ones, null for a new block: the
   *   result replaces them.
   */
  keep(owner: object, salt: string | null, prompt: Int32Array, computed: number, store: (start: number, known: B | null) => B): void {
    if (!this.isEnabled) return;
    const path: Block<B>[] = [];
    const tree = this.#trees.get(owner)?.get(salt) ?? { owner, salt, children: new Map<string, Block<B>>() };
    let node: Node<B> = tree;
    for (let start = 0; start + BLOCK_TOKENS <= Math.min(computed, prompt.length); start += BLOCK_TOKENS) {
      const key = keyOf(prompt, start);
      let block: Block<B> | undefined = node.children.get(key);
      const stored = store(start, block?.stored ?? null);
      if (stored.memory.bytes > this.#maxBytes) break;
      this.#hold(stored.memory);
      if (block) {
        this.#release(block.stored.memory);
        block.stored = stored;
      } else {
        if (tree.children.size === 0) this.#addTree(tree);
        block = { parent: node, key, stored, children: new Map() };
        node.children.set(key, block);
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
    const dropAll = (node: Node<B>) => {
      for (const block of node.children.values()) {
        dropAll(block);
        this.#drop(block);
      }
    };
    trees?.forEach(dropAll);
  }

  #hold(memory: KeysMemory): void {
    const blocks = this.#blocks.get(memory) ?? 0;
    this.#blocks.set(memory, blocks + 1);
    if (blocks > 0) return;
    memory.hold();
    this.#bytes += memory.bytes;
  }

  #release(memory: KeysMemory): void {
    const others = getOrThrow(this.#blocks, memory) - 1;
    if (others > 0) {
      this.#blocks.set(memory, others);
      return;
    }
    this.#blocks.delete(memory);
    this.#bytes -= memory.bytes;
    memory.release();
  }

  #addTree(tree: Tree<B>): void {
    getOrInsert(this.#trees, tree.owner, () => new Map()).set(tree.salt, tree);
  }

  #removeTree({ owner, salt }: Tree<B>): void {
    const trees = this.#trees.get(owner);
    trees?.delete(salt);
    if (trees?.size === 0) this.#trees.delete(owner);
  }

  #touch(path: readonly Block<B>[]): void {
    for (const block of path.toReversed()) {
      this.#byAge.delete(block);
      this.#byAge.add(block);
    }
  }

  #drop(block: Block<B>): void {
    const { parent } = block;
    parent.children.delete(block.key);
    if ("owner" in parent && parent.children.size === 0) this.#removeTree(parent);
    this.#byAge.delete(block);
    this.#release(block.stored.memory);
  }
}

function keyOf(prompt: Int32Array, start: number): string {
  return prompt.subarray(start, start + BLOCK_TOKENS).join();
}
