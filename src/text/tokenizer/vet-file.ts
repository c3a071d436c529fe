/** Checks of `tokenizer.json` that keep its use within bounds. */
import { DataError } from "../../base/errors.ts";
import type { TokenizerFile } from "./files.ts";
import { requireBoundedRegex } from "./regex-cost.ts";

/** Levels of parts inside parts. */
const MAX_DEPTH = 16;
/** Parts of a pipeline. */
const MAX_PARTS = 256;
/** Longest text that a part inserts for each match, in UTF-16 units. */
const MAX_INSERTED = 256;

/**
 * Checks the normalizer, pre-tokenizer and decoder of a file: how deep and how many their parts are, how long the
 * texts are that they insert, and the cost of their regular expressions.
 *
 * @param path - Names the file in messages.
 * @throws DataError `E_DATA`, UnsupportedError `E_UNSUPPORTED` naming the part.
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
