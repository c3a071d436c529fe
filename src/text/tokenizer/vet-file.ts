/** Limits on the parts of a `tokenizer.json`, which may come from somebody else: they bound the time and memory of encoding. */
import { DataError } from "../../base/errors.ts";
import type { TokenizerFile } from "./files.ts";
import { requireBoundedRegex } from "./regex-cost.ts";

/** Max levels of nested values in a part, including the parts inside of it. */
const MAX_DEPTH = 16;
/** Max number of parts of the whole pipeline. */
const MAX_PARTS = 256;
/** Max length of a text that a part searches for or inserts for each match, in UTF-16 units. */
const MAX_INSERTED = 256;

/**
 * Checks the normalizer, pre-tokenizer and decoder of a file: depth and number of their parts, length of the texts that they insert, and
 * cost of their regular expressions.
 *
 * @param path - Path of the file, for messages.
 * @throws DataError `E_DATA` naming the part that exceeds a limit.
 * @throws UnsupportedError `E_UNSUPPORTED` naming a regular expression that is too costly.
 */
export function vetTokenizerFile(path: string, file: TokenizerFile): void {
  let parts = 0;
  const vet = (value: unknown, place: string, depth: number): void => {
    if (typeof value !== "object" || value === null) return;
    if (depth > MAX_DEPTH) throw new DataError(`${path}: ${place}: expected at most ${MAX_DEPTH} levels`);
    if ("type" in value && ++parts > MAX_PARTS) throw new DataError(`${path}: expected at most ${MAX_PARTS} parts of the pipeline`);
    for (const [key, inner] of Object.entries(value)) {
      const here = `${place}.${key}`;
      if (key === "Regex" && typeof inner === "string") requireBoundedRegex(inner, `${path}: ${here}`);
      if ((key === "content" || key === "prepend" || key === "String") && typeof inner === "string" && inner.length > MAX_INSERTED)
        throw new DataError(`${path}: ${here}: expected at most ${MAX_INSERTED} characters, got ${inner.length}`);
      vet(inner, here, depth + 1);
    }
  };
  for (const key of ["normalizer", "pre_tokenizer", "decoder"] as const) vet(file[key], key, 0);
}
