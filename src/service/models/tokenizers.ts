/** Cache of loaded tokenizers, one per thread; `shared-tokenizers.ts` shares their tables between threads. */
import { loadTokenizer, type ChatTokenizer } from "../../text/tokenizer/index.ts";
import { Lru, remember } from "../../base/util/lru.ts";

/** Max cached tokenizers. A tokenizer of 260,000 tokens takes about 25 MB, which all threads share. */
export const MAX_TOKENIZERS = 8;

/** Returns the tokenizer of a base model's directory. */
export type TokenizerSource = (directory: string) => Promise<ChatTokenizer>;

/** Creates a cache that loads each tokenizer once. A failed load is retried at the next call. */
export function createTokenizers(load: TokenizerSource = loadTokenizer): TokenizerSource {
  const loaded = new Lru<string, Promise<ChatTokenizer>>({ maxEntries: MAX_TOKENIZERS });
  return (directory) => remember(loaded, directory, () => load(directory));
}
