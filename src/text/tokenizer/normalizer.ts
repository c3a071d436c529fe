/** Normalizers: they rewrite a text before it is cut into words. */
import { z } from "zod";
import { UnsupportedError } from "../../base/errors.ts";
import { component, type Component } from "./files.ts";
import { libraryNormalizer } from "./library.ts";
import { FORMS, normalizeText } from "./unicode.ts";

/** Function that returns the normalized text. */
export type Normalizer = (text: string) => string;

/**
 * Compiles a normalizer; null means that texts stay as they are.
 *
 * @throws UnsupportedError `E_UNSUPPORTED` for a normalizer that does not exist or has no valid settings.
 */
export function compileNormalizer(part: Component | null): Normalizer | null {
  if (part === null) return null;
  if (FORMS.has(part.type)) return (text) => normalizeText(text, part.type);
  if (part.type === "Sequence") {
    const parts = normalizersOf(part);
    return (text) => parts.reduce((current, normalize) => normalize(current), text);
  }
  try {
    return libraryNormalizer(part);
  } catch (error) {
    throw new UnsupportedError(`tokenizer.json: the normalizer \`${part.type}\` is not supported: ${(error as Error).message}`, {
      cause: error,
    });
  }
}

/** Compiles the parts of a `Sequence`. */
function normalizersOf(part: Component): Normalizer[] {
  const result = z.array(component).safeParse(part["normalizers"]);
  if (!result.success) throw new UnsupportedError("tokenizer.json: the normalizer `Sequence` is not supported without `normalizers`.");
  return result.data.flatMap((inner) => compileNormalizer(inner) ?? []);
}
