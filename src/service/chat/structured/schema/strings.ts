/** Strings that a schema describes. */
import { repeat, sequence, text, type Expression } from "../../../../engine/grammar/expression.ts";
import { ANY_CHARACTER, spelled, type JsonParts } from "../json-text.ts";
import { regexExpression } from "../regex.ts";
import { FORMATS } from "./formats.ts";
import { invalid, refuse, toCount, type SchemaObject } from "./keywords.ts";

/**
 * A string. What a pattern or a format describes is spelled as `JSON.stringify` does; other strings may have any escapes.
 *
 * Beside a pattern a format is a remark: libraries that write both mean the same by them.
 */
export function stringOf(schema: SchemaObject, parts: JsonParts, path: string): Expression {
  const { pattern, format } = schema;
  const [min, max] = [toCount(schema, "minLength", path), toCount(schema, "maxLength", path)];
  const quoted = (body: Expression): Expression => sequence(text('"'), body, text('"'));
  if (format !== undefined && typeof format !== "string") throw invalid("format", path, "a string", format);
  if (pattern === undefined && format === undefined)
    return min === undefined && max === undefined ? parts.string : quoted(repeat(ANY_CHARACTER, min ?? 0, max ?? null));
  const keyword = pattern === undefined ? "format" : "pattern";
  if ((min ?? 0) > 0 || max !== undefined) throw refuse(keyword, path, "bounds of the length stand beside it; say the length in a pattern");
  if (pattern === undefined) {
    const source = Object.hasOwn(FORMATS, format!) ? FORMATS[format!] : undefined;
    if (source === undefined)
      throw refuse("format", path, `\`${format}\` is not among ${Object.keys(FORMATS).join(", ")}; a \`pattern\` can say it`);
    return quoted(regexExpression(source, { of: "whole", spell: spelled, name: `The format of the schema at ${path}` }));
  }
  if (typeof pattern !== "string") throw invalid("pattern", path, "a string", pattern);
  return quoted(regexExpression(pattern, { of: "part", spell: spelled, isStrict: true, name: `The pattern of the schema at ${path}` }));
}
