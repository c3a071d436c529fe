/** Vocabulary in GGUF metadata: texts and types of tokens, and ids of special tokens. */
import { DataError } from "../errors.ts";
import type { GgufMetadata } from "./metadata.ts";

/** Token types by name. The values are llama.cpp's `llama_token_type`. */
export const TOKEN_TYPES = { normal: 1, unknown: 2, control: 3, userDefined: 4, unused: 5, byte: 6 } as const;

/** Name of a special token, as in its metadata key `tokenizer.ggml.<name>_token_id`. */
export type SpecialName = "bos" | "eos" | "eot" | "unknown" | "padding";

/** Texts and types of all tokens, indexed by token id, and the special tokens. */
export interface GgufVocabulary {
  /** Text of each token; `[EMPTY_<id>]` for a token without text. */
  readonly texts: readonly string[];
  /** Type of each token, a value of {@link TOKEN_TYPES}; not checked. May have more elements than there are tokens. */
  readonly types: readonly number[];
  /** Token id of each text. */
  readonly ids: ReadonlyMap<string, number>;
  /** Ids of the special tokens that have a metadata key. */
  readonly special: Readonly<Partial<Record<SpecialName, number>>>;
}

/**
 * Reads the vocabulary from the metadata. Types beyond the number of tokens are ignored; without types, all tokens are normal.
 *
 * @throws DataError `E_DATA` naming the key if a value has the wrong type, if there are no tokens or fewer types than tokens, if two tokens
 *   have the same text, or if the id of a special token is not the id of a token.
 */
export function readVocabulary(metadata: GgufMetadata): GgufVocabulary {
  const { label } = metadata;
  const stored = metadata.strings("tokenizer.ggml.tokens");
  if (stored === undefined || stored.length === 0)
    throw new DataError(`${label}: expected the metadata key tokenizer.ggml.tokens with at least one token: the file has no tokenizer`);
  // As in llama.cpp, a token without text gets a unique text.
  const texts = stored.map((text, id) => (text === "" ? `[EMPTY_${id}]` : text));
  const types = metadata.numbers("tokenizer.ggml.token_type") ?? texts.map(() => TOKEN_TYPES.normal);
  if (types.length < texts.length)
    throw new DataError(`${label}: tokenizer.ggml.token_type: expected ${texts.length} values, one per token, got ${types.length}`);
  const ids = new Map<string, number>();
  for (const [id, text] of texts.entries()) {
    const otherId = ids.get(text);
    if (otherId !== undefined)
      throw new DataError(
        `${label}: tokenizer.ggml.tokens: expected different tokens, got ${JSON.stringify(text.slice(0, 100))} with ids ${otherId} and ${id}`,
      );
    ids.set(text, id);
  }
  return { texts, types, ids, special: specialIds(metadata, texts.length) };
}

/** Id that says that there is no such token: −1 in llama.cpp, as an unsigned number of 32 bits. */
const NO_TOKEN = 2 ** 32 - 1;

/**
 * Reads the ids of the special tokens that have a metadata key.
 *
 * @param size - Number of tokens.
 * @throws DataError `E_DATA` naming the key if a value is not the id of a token.
 */
function specialIds(metadata: GgufMetadata, size: number): Partial<Record<SpecialName, number>> {
  const ids: Partial<Record<SpecialName, number>> = {};
  for (const name of ["bos", "eos", "eot", "unknown", "padding"] as const) {
    const key = `tokenizer.ggml.${name}_token_id`;
    const id = metadata.number(key);
    if (id === undefined || id === NO_TOKEN) continue;
    if (!Number.isInteger(id) || id < 0 || id >= size)
      throw new DataError(`${metadata.label}: ${key}: expected the id of a token below ${size}, got ${id}`);
    ids[name] = id;
  }
  return ids;
}
