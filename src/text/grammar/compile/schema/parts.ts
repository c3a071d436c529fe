/** The positions of a schema at which it contains other schemas. */
import { isSchemaObject, type SchemaObject } from "./keywords.ts";

/** Keywords that contain one schema or a list of schemas. */
const HOLDS_SCHEMAS = [
  ...["allOf", "anyOf", "oneOf", "not", "if", "then", "else"],
  ...["items", "prefixItems", "additionalItems", "contains", "unevaluatedItems"],
  ...["additionalProperties", "propertyNames", "unevaluatedProperties"],
];
/** Keywords that contain schemas by name. `dependencies` may contain lists of names as well. */
const HOLDS_MAP = ["properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"];

/**
 * Returns a copy of a schema with changed parts.
 *
 * @param schema - The schema, of any draft.
 * @param change - Returns the replacement of a part, which is a schema object at the position `keys` of `schema`.
 */
export function withParts(schema: SchemaObject, change: (part: SchemaObject, ...keys: readonly string[]) => unknown): SchemaObject {
  const result: Record<string, unknown> = { ...schema };
  const changed = (value: unknown, ...keys: readonly string[]): unknown => (isSchemaObject(value) ? change(value, ...keys) : value);
  for (const keyword of HOLDS_SCHEMAS) {
    const value = result[keyword];
    if (Array.isArray(value)) result[keyword] = value.map((each, at) => changed(each, keyword, String(at)));
    else if (value !== undefined) result[keyword] = changed(value, keyword);
  }
  for (const keyword of HOLDS_MAP) {
    const map = result[keyword];
    if (isSchemaObject(map))
      result[keyword] = Object.fromEntries(Object.entries(map).map(([name, each]) => [name, changed(each, keyword, name)]));
  }
  return result;
}
