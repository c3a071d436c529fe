/** Two schemas as one that accepts what both accept, where that can be said. */
import {
  assertionsOf,
  canonicalJson,
  invalid,
  isSameJson,
  isSchemaObject,
  refuse,
  toNames,
  toSchema,
  toSchemaMap,
  toSchemas,
  type Schema,
  type SchemaObject,
} from "./keywords.ts";

/** What a reference stands for. */
export type Resolve = (reference: unknown, path: string) => { readonly schema: Schema; readonly path: string };

interface Context {
  readonly resolve: Resolve;
  readonly path: string;
  /** References followed and parts entered on the way here: a schema may contain itself. */
  readonly depth: number;
  /** Pairs merged in all, and entries of lists compared for it: alternatives multiply. */
  readonly spent: { pairs: number; entries: number };
}

const MAX_DEPTH = 64;
const MAX_PAIRS = 20_000;
const MAX_ENTRIES = 1_000_000;

function spend({ spent, path }: Context, entries: number): void {
  spent.entries += entries;
  if (spent.pairs > MAX_PAIRS || spent.entries > MAX_ENTRIES)
    throw refuse("allOf", path, "it has too many alternatives that must hold together");
}

function asTypes(value: unknown, path: string): readonly string[] {
  return typeof value === "string" ? [value] : toNames(value, "type", path);
}

function mergedTypes(a: unknown, b: unknown, path: string): readonly string[] {
  const [left, right] = [asTypes(a, path), asTypes(b, path)];
  const has = (types: readonly string[], type: string) => types.includes(type) || (type === "integer" && types.includes("number"));
  return [...new Set([...left.filter((type) => has(right, type)), ...right.filter((type) => has(left, type))])];
}

/** The values that both lists have. */
function mergedValues(a: unknown, b: unknown, context: Context): readonly unknown[] {
  if (!Array.isArray(a) || !Array.isArray(b)) throw invalid("enum", context.path, "an array", Array.isArray(a) ? b : a);
  spend(context, a.length + b.length);
  const others = new Set(b.map(canonicalJson));
  return a.filter((value) => others.has(canonicalJson(value)));
}

/** Keywords of numbers of which the stricter one counts. */
const STRICTER: Readonly<Record<string, (a: number, b: number) => number>> = {
  minimum: Math.max,
  exclusiveMinimum: Math.max,
  minLength: Math.max,
  minItems: Math.max,
  minProperties: Math.max,
  maximum: Math.min,
  exclusiveMaximum: Math.min,
  maxLength: Math.min,
  maxItems: Math.min,
  maxProperties: Math.min,
};

function mergedKeyword(keyword: string, a: unknown, b: unknown, context: Context): unknown {
  const { path } = context;
  if (isSameJson(a, b)) return a;
  if (keyword === "type") return mergedTypes(a, b, path);
  if (keyword === "enum") return mergedValues(a, b, context);
  if (keyword === "required") {
    const names = [...toNames(a, keyword, path), ...toNames(b, keyword, path)];
    spend(context, names.length);
    return [...new Set(names)];
  }
  if (keyword === "uniqueItems") return a === true || b === true;
  const stricter = STRICTER[keyword];
  if (stricter !== undefined) {
    if (typeof a !== "number" || typeof b !== "number") throw invalid(keyword, path, "a number", typeof a === "number" ? b : a);
    return stricter(a, b);
  }
  throw refuse(keyword, path, "two schemas that must hold together both have it");
}

/** What one schema says about the members of an object. */
function mergedMembers(a: SchemaObject, b: SchemaObject, context: Context): SchemaObject {
  const { path } = context;
  const keywords = ["properties", "additionalProperties", "patternProperties"].filter((keyword) => keyword in a || keyword in b);
  if (keywords.length === 0) return {};
  if (keywords.every((keyword) => isSameJson(a[keyword], b[keyword])))
    return Object.fromEntries(keywords.map((keyword) => [keyword, a[keyword]]));
  if (keywords.includes("patternProperties")) throw refuse("patternProperties", path, "another schema must hold together with it");
  const [left, right] = [toSchemaMap(a["properties"], "properties", path), toSchemaMap(b["properties"], "properties", path)];
  const [moreLeft, moreRight] = [a, b].map((each) => toSchema(each["additionalProperties"] ?? true, "additionalProperties", path));
  const properties = [...new Set([...left.keys(), ...right.keys()])].map((name): [string, Schema] => [
    name,
    merged(left.get(name) ?? moreLeft!, right.get(name) ?? moreRight!, { ...deeper(context), path: `${path}/properties/${name}` }),
  ]);
  const more = merged(moreLeft!, moreRight!, deeper(context));
  return { properties: Object.fromEntries(properties), ...(more === true ? {} : { additionalProperties: more }) };
}

function mergedItems(a: SchemaObject, b: SchemaObject, context: Context): SchemaObject {
  const keywords = ["items", "prefixItems", "additionalItems"].filter((keyword) => keyword in a || keyword in b);
  const only = (schema: SchemaObject) => keywords.every((keyword) => !(keyword in schema));
  if (only(b) || keywords.every((keyword) => isSameJson(a[keyword], b[keyword]))) return pick(a, keywords);
  if (only(a)) return pick(b, keywords);
  if (keywords.length > 1 || keywords[0] !== "items" || Array.isArray(a["items"]) || Array.isArray(b["items"]))
    throw refuse(keywords.at(-1)!, context.path, "two schemas that must hold together both speak of items");
  return { items: merged(toSchema(a["items"], "items", context.path), toSchema(b["items"], "items", context.path), deeper(context)) };
}

function pick(schema: SchemaObject, keywords: readonly string[]): SchemaObject {
  return Object.fromEntries(Object.entries(schema).filter(([keyword]) => keywords.includes(keyword)));
}

function omit(schema: SchemaObject, ...keywords: readonly string[]): SchemaObject {
  return Object.fromEntries(Object.entries(schema).filter(([keyword]) => !keywords.includes(keyword)));
}

const GROUPED = ["properties", "additionalProperties", "patternProperties", "items", "prefixItems", "additionalItems"];

/**
 * The schema of what both accept.
 *
 * @throws UnsupportedError `E_UNSUPPORTED` naming a keyword of which this cannot be said.
 */
function merged(a: Schema, b: Schema, context: Context): Schema {
  context.spent.pairs++;
  spend(context, 0);
  if (a === true || b === false) return b;
  if (b === true || a === false) return a;
  if (isSameJson(a, b)) return a;
  const [left, right] = [a, b].map((each) => spreadOut(each as SchemaObject, context)) as [SchemaObject | boolean, SchemaObject | boolean];
  if (!isSchemaObject(left) || !isSchemaObject(right)) return merged(left, right, context);
  for (const [one, other] of [
    [left, right],
    [right, left],
  ] as const) {
    for (const keyword of ["anyOf", "oneOf"]) {
      if (!(keyword in one)) continue;
      const rest = merged(omit(one, keyword), other, context);
      return { [keyword]: toSchemas(one[keyword], keyword, context.path).map((option) => merged(rest, option, deeper(context))) };
    }
  }
  const result: Record<string, unknown> = { ...mergedMembers(left, right, context), ...mergedItems(left, right, context) };
  for (const keyword of new Set([...Object.keys(left), ...Object.keys(right)])) {
    if (GROUPED.includes(keyword)) continue;
    result[keyword] =
      keyword in left && keyword in right
        ? mergedKeyword(keyword, left[keyword], right[keyword], context)
        : (left[keyword] ?? right[keyword]);
  }
  return result;
}

function deeper(context: Context): Context {
  if (context.depth >= MAX_DEPTH)
    throw refuse("allOf", context.path, "schemas that must hold together refer to themselves, or are nested too deeply");
  return { ...context, depth: context.depth + 1 };
}

/** A schema with its reference and its `allOf` written out, and `const` as an `enum`. */
function spreadOut(given: SchemaObject, context: Context): Schema {
  const schema = assertionsOf(given);
  if ("$ref" in schema) {
    const { schema: meant } = context.resolve(schema["$ref"], context.path);
    return merged(omit(schema, "$ref"), meant, deeper(context));
  }
  if ("allOf" in schema) {
    const parts = toSchemas(schema["allOf"], "allOf", context.path);
    return parts.reduce((all, part) => merged(all, part, deeper(context)), omit(schema, "allOf") as Schema);
  }
  if (!("const" in schema)) return schema;
  const values = [schema["const"]];
  const rest = omit(schema, "const");
  return { ...rest, enum: "enum" in rest ? mergedValues(rest["enum"], values, context) : values };
}

/** Schemas that must all hold, as one. */
export function mergeSchemas(schemas: readonly Schema[], resolve: Resolve, path: string): Schema {
  const context = { resolve, path, depth: 0, spent: { pairs: 0, entries: 0 } };
  return schemas.reduce((all, schema) => merged(all, schema, context), true as Schema);
}
