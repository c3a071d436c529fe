/** Limits on the parts of a `tokenizer.json`, which may come from an untrusted source: they bound the time and memory of encoding. */
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
  let partCount = 0;
  const vet = (value: unknown, place: string, depth: number): void => {
    if (typeof value !== "object" || value === null) return;
    if (depth > MAX_DEPTH) throw new DataError(`${path}: ${place}: expected at most ${MAX_DEPTH} levels`);
    if ("type" in value) partCount++;
    if (partCount > MAX_PARTS) throw new DataError(`${path}: expected at most ${MAX_PARTS} parts of the pipeline`);
    for (const [key, setting] of Object.entries(value)) {
      const settingPlace = `${place}.${key}`;
      if (typeof setting === "string") vetText(key, setting, `${path}: ${settingPlace}`);
      else vet(setting, settingPlace, depth + 1);
    }
  };
  for (const key of ["normalizer", "pre_tokenizer", "decoder"] as const) vet(file[key], key, 0);
}

/** Checks a text among the settings of a part, named by its key. */
function vetText(key: string, text: string, place: string): void {
  if (key === "Regex") requireBoundedRegex(text, place);
  if ((key === "content" || key === "prepend" || key === "String") && text.length > MAX_INSERTED)
    throw new DataError(`${place}: expected at most ${MAX_INSERTED} characters, got ${text.length}`);
}
