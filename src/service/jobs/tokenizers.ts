import { loadTokenizer, type ChatTokenizer } from "../../tokenizer/index.ts";
import { remember } from "../../util/remember.ts";

/** Tokenizers kept; those of large vocabularies take a hundred megabytes. */
const MAX_TOKENIZERS = 8;

/** The tokenizer of a base model's directory. */
export type TokenizerSource = (directory: string) => Promise<ChatTokenizer>;

/** Loads the tokenizers of the directories in use once; a load that failed is tried again. */
export function createTokenizers(load: TokenizerSource = loadTokenizer): TokenizerSource {
  const loaded = new Map<string, Promise<ChatTokenizer>>();
  return (directory) => remember(loaded, directory, () => load(directory), MAX_TOKENIZERS);
}
