/** Replacement of the schemas that a schema contains. */
import { isSchemaObject, type SchemaObject } from "./keywords.ts";

/** Keywords that contain one schema or a list of schemas. */
const SCHEMA_KEYWORDS = [
  ...["allOf", "anyOf", "oneOf", "not", "if", "then", "else"],
  ...["items", "prefixItems", "additionalItems", "contains", "unevaluatedItems"],
  ...["additionalProperties", "propertyNames", "unevaluatedProperties"],
];
/** Keywords that contain schemas by name. `dependencies` may contain lists of names as well. */
const SCHEMA_MAP_KEYWORDS = ["properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"];

/**
 * Returns a copy of a schema in which the schemas that it contains directly are replaced.
 *
 * @param schema - The schema, of any draft.
 * @param change - Returns the replacement of `part`, a schema object at the position `keys` of `schema`. Boolean schemas stay as they are.
 */
export function withParts(schema: SchemaObject, change: (part: SchemaObject, ...keys: readonly string[]) => unknown): SchemaObject {
  const result: Record<string, unknown> = { ...schema };
  const changed = (value: unknown, ...keys: readonly string[]): unknown => (isSchemaObject(value) ? change(value, ...keys) : value);
  for (const keyword of SCHEMA_KEYWORDS) {
    const value = result[keyword];
    if (Array.isArray(value)) result[keyword] = value.map((part, at) => changed(part, keyword, String(at)));
    else if (value !== undefined) result[keyword] = changed(value, keyword);
  }
  for (const keyword of SCHEMA_MAP_KEYWORDS) {
    const map = result[keyword];
    if (isSchemaObject(map))
      result[keyword] = Object.fromEntries(Object.entries(map).map(([name, part]) => [name, changed(part, keyword, name)]));
  }
  return result;
}
