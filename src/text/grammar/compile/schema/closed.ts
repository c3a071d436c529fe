/**
 * Closes objects in a schema: they may have only the members that it names. A grammar may close objects by default; the schema with which
 * the finished text is validated must then close them too.
 */
import { toLatestDraftDeep } from "./drafts.ts";
import { asList, isSchemaObject, type Schema, type SchemaObject } from "./keywords.ts";

/** Keywords with schemas of members and items. */
const PARTS = [
  ...["properties", "patternProperties", "additionalProperties", "unevaluatedProperties"],
  ...["items", "prefixItems", "contains", "unevaluatedItems"],
];
/** Keywords with alternative schemas for the value itself. */
const ALTERNATIVES = ["anyOf", "oneOf"];

/** Whether a schema describes members or items, by itself or by schemas that apply to the same value. */
function hasParts(schema: unknown): boolean {
  if (!isSchemaObject(schema)) return false;
  if (PARTS.some((keyword) => keyword in schema) || "$ref" in schema) return true;
  return ["allOf", ...ALTERNATIVES].some((keyword) => asList(schema[keyword]).some(hasParts));
}

/** Keywords by which a grammar may allow members that the validation counts as additional; schemas with one of them stay open. */
const OPENING = ["propertyNames", "not", "if", "dependentSchemas"];

/** Closes the objects of one document. */
class Closing {
  /** Whether definitions are left as they are, because one is merged with other schemas. */
  readonly #keepsDefinitions: boolean;
  /** Whether a reference was found that is merged with other schemas. */
  hasMergedReference = false;

  constructor({ keepsDefinitions }: { readonly keepsDefinitions: boolean }) {
    this.#keepsDefinitions = keepsDefinitions;
  }

  /** Closes the objects of a schema and of its parts. */
  closed(schema: unknown): unknown {
    if (!isSchemaObject(schema)) return schema;
    const withClosedParts = this.#withClosedParts(schema);
    const isDecided = "additionalProperties" in schema || "unevaluatedProperties" in schema;
    return isDecided ? withClosedParts : { ...withClosedParts, unevaluatedProperties: false };
  }

  /**
   * Closes the objects of a schema's members and items, but not those of the schema itself. Members and items that several schemas describe
   * stay open.
   */
  #withClosedParts(schema: SchemaObject): SchemaObject {
    const { $defs, definitions, ...asserted } = schema;
    const result: Record<string, unknown> = { ...schema };
    const withClosedParts = (each: unknown): unknown => (isSchemaObject(each) ? this.#withClosedParts(each) : each);
    if (!this.#keepsDefinitions) {
      for (const [keyword, map] of Object.entries({ $defs, definitions }))
        if (isSchemaObject(map)) result[keyword] = mapped(map, withClosedParts);
    }
    /** For each schema that applies to the same value, whether it describes members or items. Alternatives count as one schema. */
    const describesParts = [
      PARTS.some((keyword) => keyword in schema),
      "$ref" in schema,
      ...asList(schema["allOf"]).map(hasParts),
      ...ALTERNATIVES.map((keyword) => asList(schema[keyword]).some(hasParts)),
    ];
    if (describesParts.filter(Boolean).length > 1) {
      this.hasMergedReference ||= JSON.stringify(asserted).includes('"$ref"');
      return result;
    }
    for (const keyword of ["allOf", ...ALTERNATIVES])
      if (Array.isArray(schema[keyword])) result[keyword] = (schema[keyword] as readonly unknown[]).map(withClosedParts);
    const { properties, patternProperties, additionalProperties, items, prefixItems, contains } = schema;
    // Patterns may match named members, and `contains` applies to the items.
    if (isSchemaObject(properties) && patternProperties === undefined)
      result["properties"] = mapped(properties, (each) => this.closed(each));
    if (additionalProperties !== undefined) result["additionalProperties"] = this.closed(additionalProperties);
    if (items !== undefined && contains === undefined) result["items"] = this.closed(items);
    if (Array.isArray(prefixItems) && contains === undefined) result["prefixItems"] = prefixItems.map((each) => this.closed(each));
    return result;
  }
}

/** Returns an object with each value replaced by the result of `change`. */
function mapped(map: SchemaObject, change: (value: unknown) => unknown): SchemaObject {
  return Object.fromEntries(Object.entries(map).map(([name, each]) => [name, change(each)]));
}

/**
 * Returns a schema in which objects may have only the members that their schemas name, unless they set `additionalProperties`. The result
 * rejects no text of a grammar that closes objects: objects whose members result from a merge of several schemas stay open, as do all
 * objects of a schema with conditions, negations or rules for names.
 */
export function withClosedObjects(given: Schema): Schema {
  const schema = toLatestDraftDeep(given);
  const text = JSON.stringify(schema);
  if (OPENING.some((keyword) => text.includes(`"${keyword}":`))) return schema;
  const closing = new Closing({ keepsDefinitions: false });
  const closed = closing.closed(schema);
  // A definition that is merged with other schemas must stay open, and it is known only now.
  return (closing.hasMergedReference ? new Closing({ keepsDefinitions: true }).closed(schema) : closed) as Schema;
}
