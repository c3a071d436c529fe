/** Resolution of `$ref` within the same document. */
import { invalid, refuse, toSchema, type Schema } from "./keywords.ts";

/** Decodes the percent signs of a URI fragment. As RFC 6901 requires, this precedes the split at slashes. */
function decoded(reference: string, path: string): string {
  try {
    return decodeURIComponent(reference);
  } catch {
    throw invalid("$ref", path, "a URI whose percent signs begin characters of UTF-8", reference);
  }
}

/**
 * Resolves a reference, a JSON pointer from the root of the document.
 *
 * @throws UnsupportedError `E_UNSUPPORTED` for a reference to another document.
 * @throws ArgumentError `E_ARGUMENT` for a position that does not exist.
 * @source RFC 6901 section 6.
 */
export function resolveReference(document: Schema, reference: unknown, path: string): { readonly schema: Schema; readonly path: string } {
  if (typeof reference !== "string") throw invalid("$ref", path, "a string", reference);
  if (reference !== "#" && !reference.startsWith("#/"))
    throw refuse("$ref", path, `\`${reference}\` is not a place in the same schema, such as #/$defs/name`);
  let at: unknown = document;
  for (const part of decoded(reference, path).split("/").slice(1)) {
    const key = part.replaceAll("~1", "/").replaceAll("~0", "~");
    at = typeof at === "object" && at !== null && Object.hasOwn(at, key) ? (at as Readonly<Record<string, unknown>>)[key] : undefined;
  }
  if (at === undefined) throw invalid("$ref", path, "a place that exists", reference);
  return { schema: toSchema(at, "$ref", path), path: reference };
}
