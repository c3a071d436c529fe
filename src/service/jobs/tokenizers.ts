import { loadTokenizer, type ChatTokenizer } from "../../tokenizer/index.ts";

/** The tokenizer of a base model's directory. */
export type TokenizerSource = (directory: string) => Promise<ChatTokenizer>;

/** Loads each directory's tokenizer once; a load that failed is tried again. */
export function createTokenizers(): TokenizerSource {
  const loaded = new Map<string, Promise<ChatTokenizer>>();
  return (directory) => {
    const known = loaded.get(directory);
    if (known !== undefined) return known;
    const loading = loadTokenizer(directory);
    loaded.set(directory, loading);
    loading.catch(() => loaded.delete(directory));
    return loading;
  };
}
