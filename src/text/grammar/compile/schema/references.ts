/** Resolution of references by JSON pointers. */
import type { UnsupportedError } from "../../../../base/errors.ts";
import { invalid, unenforceable, toSchema, type Schema } from "./keywords.ts";

/** Keyword with a reference. */
export type Keyword = "$ref" | "$dynamicRef" | "$recursiveRef";

/** Decodes the percent-encoding of a URI fragment. As RFC 6901 requires, this precedes the split at slashes. */
export function decoded(fragment: string, keyword: Keyword, path: string): string {
  try {
    return decodeURIComponent(fragment);
  } catch {
    throw invalid(keyword, path, "a URI whose percent signs begin characters of UTF-8", fragment);
  }
}

/** Returns the error for a reference to another document. */
export function inOtherDocument(keyword: Keyword, path: string, reference: string): UnsupportedError {
  return unenforceable(
    keyword,
    path,
    `\`${reference}\` is in another document, which is supported only as a part of \`$defs\`, with its \`$id\``,
  );
}

/**
 * Returns the value that a JSON pointer addresses in a document, or undefined if it addresses nothing.
 *
 * @source RFC 6901 section 4.
 */
export function atPointer(document: unknown, pointer: string): unknown {
  let value = document;
  for (const step of pointer.split("/").slice(1)) {
    const key = step.replaceAll("~1", "/").replaceAll("~0", "~");
    if (typeof value !== "object" || value === null || !Object.hasOwn(value, key)) return undefined;
    value = (value as Readonly<Record<string, unknown>>)[key];
  }
  return value;
}

/**
 * Resolves a reference, a JSON pointer from the root of the document (`#/$defs/a`).
 *
 * @throws UnsupportedError `E_UNSUPPORTED` for a reference to another document.
 * @throws ArgumentError `E_ARGUMENT` for a position that does not exist.
 * @source RFC 6901 section 6.
 */
export function resolveReference(document: Schema, reference: unknown, path: string): { readonly schema: Schema; readonly path: string } {
  if (typeof reference !== "string") throw invalid("$ref", path, "a string", reference);
  if (!reference.startsWith("#")) throw inOtherDocument("$ref", path, reference);
  const pointer = decoded(reference.slice(1), "$ref", path);
  const isPointer = pointer === "" || pointer.startsWith("/");
  const target = isPointer ? atPointer(document, pointer) : undefined;
  if (target === undefined) throw invalid("$ref", path, "a place that exists", reference);
  return { schema: toSchema(target, "$ref", path), path: reference };
}
