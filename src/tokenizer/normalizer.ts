/** Normalizers: they rewrite a text before it is cut into words. */
import { UnsupportedError } from "../errors.ts";
import type { Component } from "./files.ts";
import { libraryNormalizer } from "./library.ts";

/** Rewrites a text. */
export type Normalizer = (text: string) => string;

/**
 * Compiles a normalizer.
 *
 * @throws UnsupportedError `E_UNSUPPORTED` for a normalizer that does not exist or has no valid settings.
 */
export function compileNormalizer(part: Component | null): Normalizer | null {
  if (part === null || (part.type === "Sequence" && isEmpty(part["normalizers"]))) return null;
  try {
    return libraryNormalizer(part);
  } catch (error) {
    throw new UnsupportedError(`tokenizer.json: the normalizer \`${part.type}\` is not supported: ${(error as Error).message}`, { cause: error });
  }
}

function isEmpty(list: unknown): boolean {
  return Array.isArray(list) && list.length === 0;
}
