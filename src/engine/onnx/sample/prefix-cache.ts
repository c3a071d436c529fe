/**
 * Keys and values of prompts' beginnings, in blocks of {@link BLOCK_TOKENS} tokens.
 *
 * A block hangs below the block of the tokens before it, so one that is found has everything before it. Each policy and each
 * salt has a tree of its own. Only what prefill computed is kept: its bits are the same whoever computes them, in whatever
 * pieces, whereas those of a decoded token differ from a prefilled one's in the last place.
 */

/** Tokens of a block. */
export const BLOCK_TOKENS = 16;

interface Block {
  readonly parent: Node;
  readonly key: string;
  /** Keys and values of the block's tokens in all layers. */
  readonly data: Float32Array;
  readonly children: Map<string, Block>;
}

type Node = Pick<Block, "children">;

/** See the file header. */
export class PrefixCache {
  readonly #maxBytes: number;
  readonly #trees = new Map<object, Map<string | null, Node>>();
  /** From the least to the most recently used. A block is always older here than its parent: the first is a leaf. */
  readonly #byAge = new Set<Block>();
  #bytes = 0;

  /** @param maxBytes - What all blocks together may hold; 0 keeps nothing. */
  constructor(maxBytes: number) {
    this.#maxBytes = maxBytes;
  }

  /** What the blocks hold. */
  get bytes(): number {
    return this.#bytes;
  }

  /**
   * The blocks that a prompt begins with, in order. Never the whole prompt: its last token has to be computed.
   *
   * @param owner - The policy.
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
   * Keeps the whole blocks among the first `computed` tokens of a prompt.
   *
   * @param read - The keys and values of the block that starts at a token; called for those that are not there yet.
   */
  keep(owner: object, salt: string | null, prompt: Int32Array, computed: number, read: (start: number) => Float32Array): void {
    if (this.#maxBytes === 0) return;
    const path: Block[] = [];
    let node = this.#treeOf(owner, salt);
    for (let start = 0; start + BLOCK_TOKENS <= Math.min(computed, prompt.length); start += BLOCK_TOKENS) {
      const key = keyOf(prompt, start);
      let block = node.children.get(key);
      if (!block) {
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

  /** Lets go of everything of a policy. */
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

  #treeOf(owner: object, salt: string | null): Node {
    let trees = this.#trees.get(owner);
    if (!trees) this.#trees.set(owner, (trees = new Map()));
    let tree = trees.get(salt);
    if (!tree) trees.set(salt, (tree = { children: new Map() }));
    return tree;
  }

  #touch(path: readonly Block[]): void {
    for (const block of path.toReversed()) {
      this.#byAge.delete(block);
      this.#byAge.add(block);
    }
  }

  #drop(block: Block): void {
    block.parent.children.delete(block.key);
    this.#byAge.delete(block);
    this.#bytes -= block.data.byteLength;
  }
}

function keyOf(prompt: Int32Array, start: number): string {
  return prompt.subarray(start, start + BLOCK_TOKENS).join();
}
