/**
 * Merging of several schemas into one schema that accepts their intersection.
 *
 * {@link mergeSchemas} merges the schemas pair by pair with `merged`, in three steps: `expanded` removes references and `allOf` from both
 * schemas, which merges their targets and parts in turn; `mergedAlternatives` merges each alternative of one schema with the other schema;
 * and `mergedKeywords` merges two schemas without any of these keyword by keyword.
 *
 * Schemas of members and items are not merged at once: a recursive schema would not end. They become an `allOf`, which the compiler merges
 * when it reaches the member or item.
 */
import {
  asList,
  assertionsOf,
  canonicalJson,
  invalid,
  isSameJson,
  isSchemaObject,
  omit,
  toNames,
  toSchema,
  toSchemaMap,
  toSchemas,
  type Schema,
  type SchemaObject,
} from "./keywords.ts";
import { asPrepared, type Prepare, type Relax, type Resolve } from "./prepare.ts";
import { getOrInsert } from "../../../../base/util/values.ts";

/** Context for merging the schemas of one document. */
export interface Merging {
  readonly resolve: Resolve;
  readonly prepare: Prepare;
  readonly relax: Relax;
  /** Whether a pattern is found in a name; null if unknown. */
  readonly matches: (pattern: string, name: string) => boolean | null;
  /** `allOf` of two schemas, by both schemas: a recursive schema leads to the same pair again, and then to the same `allOf`. */
  readonly pairs: WeakMap<SchemaObject, WeakMap<SchemaObject, SchemaObject>>;
  /** Work on the document so far: number of merged pairs, and of compared list entries. */
  readonly spent: { pairs: number; entries: number };
}

/** Context of one merge. */
interface Context extends Merging {
  readonly path: string;
  /** Number of references, parts of `allOf` and alternatives that the merge is inside of. */
  readonly depth: number;
  /** Product of the numbers of alternatives that the merge is inside of: the alternatives of several schemas multiply. */
  readonly combinations: number;
}

/** Max depth of a merge: a schema may contain itself by references alone. */
const MAX_DEPTH = 64;
/** Max number of merged pairs in a document. */
const MAX_PAIRS = 20_000;
/** Max number of compared list entries in a document. */
const MAX_ENTRIES = 1_000_000;
/** Max combinations of alternatives; the alternatives of one schema alone are not limited. */
const MAX_COMBINATIONS = 500;

/** Counts compared entries of lists. Returns whether the work on the document is within its limits. */
function countEntries({ spent }: Context, entries: number): boolean {
  spent.entries += entries;
  return isWithinLimits(spent);
}

/** Whether the work on a document is within its limits. */
function isWithinLimits({ pairs, entries }: Merging["spent"]): boolean {
  return pairs <= MAX_PAIRS && entries <= MAX_ENTRIES;
}

/** Returns the intersection of two schemas as an `allOf`, which is merged when it is compiled. */
function unmerged(a: Schema, b: Schema, { pairs }: Merging): Schema {
  if (a === true || b === false) return b;
  if (b === true || a === false || a === b) return a;
  const pairsOfFirst = getOrInsert(pairs, a, () => new WeakMap<SchemaObject, SchemaObject>());
  return getOrInsert(pairsOfFirst, b, () => asPrepared({ allOf: [a, b] }));
}

/** Records that alternatives were omitted because there are too many. */
function relaxAlternatives({ relax, path }: Context): void {
  relax("allOf", path, "it has too many alternatives that must hold together");
}

/** Returns the value of `type` as a list. */
function asTypes(value: unknown, path: string): readonly string[] {
  return typeof value === "string" ? [value] : toNames(value, "type", path);
}

/** Returns the types that both values of `type` allow. */
function mergedTypes(a: unknown, b: unknown, path: string): readonly string[] {
  const [left, right] = [asTypes(a, path), asTypes(b, path)];
  const allows = (types: readonly string[], type: string) => types.includes(type) || (type === "integer" && types.includes("number"));
  return [...new Set([...left.filter((type) => allows(right, type)), ...right.filter((type) => allows(left, type))])];
}

/** Returns the values that both lists contain. */
function mergedValues(a: unknown, b: unknown, context: Context): readonly unknown[] {
  if (!Array.isArray(a) || !Array.isArray(b)) throw invalid("enum", context.path, "an array", Array.isArray(a) ? b : a);
  if (!countEntries(context, a.length + b.length)) {
    relaxAlternatives(context);
    return a;
  }
  const textsOfB = new Set(b.map(canonicalJson));
  return a.filter((value) => textsOfB.has(canonicalJson(value)));
}

/** Numeric keywords for which the stricter value applies. */
const STRICTER: ReadonlyMap<string, (a: number, b: number) => number> = new Map([
  ...["minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties"].map((keyword) => [keyword, Math.max] as const),
  ...["maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties"].map((keyword) => [keyword, Math.min] as const),
]);

/** Returns the value of a keyword that both schemas have, for keywords that are merged by themselves (see {@link GROUPED}). */
function mergedKeyword(keyword: string, a: unknown, b: unknown, context: Context): unknown {
  const { path } = context;
  if (isSameJson(a, b)) return a;
  if (keyword === "type") return mergedTypes(a, b, path);
  if (keyword === "enum") return mergedValues(a, b, context);
  if (keyword === "required") {
    const names = [...toNames(a, keyword, path), ...toNames(b, keyword, path)];
    countEntries(context, names.length);
    return [...new Set(names)];
  }
  if (keyword === "uniqueItems") return a === true || b === true;
  if (keyword === "not") return { anyOf: [...notsOf(a), ...notsOf(b)] };
  if (keyword === "propertyNames") return { allOf: [a, b] };
  if (keyword === "pattern" || keyword === "format" || keyword === "multipleOf") return [...new Set([...asList(a), ...asList(b)])];
  const stricter = STRICTER.get(keyword);
  if (stricter !== undefined) {
    if (typeof a !== "number" || typeof b !== "number") throw invalid(keyword, path, "a number", typeof a === "number" ? b : a);
    return stricter(a, b);
  }
  context.relax(keyword, path, "two schemas that must hold together both have it");
  return a;
}

/** Returns the schemas that a merged `not` excludes: its `anyOf`, or itself. */
export function notsOf(not: unknown): readonly SchemaObject[] {
  if (!isSchemaObject(not)) return [];
  return Array.isArray(not["anyOf"]) ? (not["anyOf"] as readonly SchemaObject[]) : [not];
}

/** Keywords of a schema for the members of an object. */
class Members {
  /** `properties`. */
  readonly named: ReadonlyMap<string, Schema>;
  /** `patternProperties`. */
  readonly patterns: ReadonlyMap<string, Schema>;
  /** `additionalProperties`. */
  readonly additional: Schema;
  readonly #context: Context;

  constructor(schema: SchemaObject, context: Context) {
    this.named = toSchemaMap(schema["properties"], "properties", context.path);
    this.patterns = toSchemaMap(schema["patternProperties"], "patternProperties", context.path);
    this.additional = toSchema(schema["additionalProperties"] ?? true, "additionalProperties", context.path);
    this.#context = context;
  }

  /** Whether any pattern, which applies in addition to all other keywords, may match a name. */
  hasPatternFor(name: string): boolean {
    return [...this.patterns.keys()].some((pattern) => this.#context.matches(pattern, name) !== false);
  }

  /** Returns the schema of a member, without patterns. */
  schemaOf(name: string): Schema {
    return this.named.get(name) ?? (this.hasPatternFor(name) ? true : this.additional);
  }
}

/** Returns the patterns of one schema, combined with the other schema's `additionalProperties`. */
function patternsOutside(members: Members, other: Members, context: Context): [string, Schema][] {
  return [...members.patterns].map(([pattern, schema]) => {
    if (other.additional === true || other.patterns.has(pattern)) return [pattern, schema];
    const isNamed = [...other.named.keys()].some((name) => context.matches(pattern, name) !== false);
    if (isNamed || other.patterns.size > 0) {
      context.relax("patternProperties", context.path, "another schema must hold together with it");
      return [pattern, schema];
    }
    return [pattern, unmerged(schema, other.additional, context)];
  });
}

/** Returns the keywords for the members of an object that result from both schemas. */
function mergedMembers(a: SchemaObject, b: SchemaObject, context: Context): SchemaObject {
  const keywords = ["properties", "additionalProperties", "patternProperties"].filter((keyword) => keyword in a || keyword in b);
  if (keywords.length === 0) return {};
  if (keywords.every((keyword) => isSameJson(a[keyword], b[keyword]))) return pick(a, keywords);
  const [left, right] = [new Members(a, context), new Members(b, context)];
  const properties = [...new Set([...left.named.keys(), ...right.named.keys()])].map((name): [string, Schema] => [
    name,
    unmerged(left.schemaOf(name), right.schemaOf(name), context),
  ]);
  const additional = unmerged(left.additional, right.additional, context);
  const patterns = new Map(patternsOutside(left, right, context));
  for (const [pattern, schema] of patternsOutside(right, left, context)) {
    const existing = patterns.get(pattern);
    patterns.set(pattern, existing === undefined ? schema : unmerged(existing, schema, context));
  }
  return {
    ...(properties.length > 0 ? { properties: Object.fromEntries(properties) } : {}),
    // Also if it is `true`: without the keyword, the grammar may close the object.
    ...(keywords.includes("additionalProperties") ? { additionalProperties: additional } : {}),
    ...(patterns.size > 0 ? { patternProperties: Object.fromEntries(patterns) } : {}),
  };
}

/** Returns the keywords for the items of an array that result from both schemas. */
function mergedItems(a: SchemaObject, b: SchemaObject, context: Context): SchemaObject {
  const { path } = context;
  const itemsOf = (schema: SchemaObject) => ({
    prefix: toSchemas(schema["prefixItems"], "prefixItems", path),
    later: toSchema(schema["items"] ?? true, "items", path),
  });
  const [left, right] = [itemsOf(a), itemsOf(b)];
  const prefixItems = Array.from({ length: Math.max(left.prefix.length, right.prefix.length) }, (_, index) =>
    unmerged(left.prefix[index] ?? left.later, right.prefix[index] ?? right.later, context),
  );
  const items = unmerged(left.later, right.later, context);
  return { ...(prefixItems.length > 0 ? { prefixItems } : {}), ...(items === true ? {} : { items }) };
}

/** Returns `contains` and its counts, which are merged together. */
function mergedContains(a: SchemaObject, b: SchemaObject, { relax, path }: Context): SchemaObject {
  const keywords = ["contains", "minContains", "maxContains"];
  if (!("contains" in a)) return pick(b, keywords);
  if ("contains" in b && !keywords.every((keyword) => isSameJson(a[keyword], b[keyword])))
    relax("contains", path, "two schemas that must hold together both have it");
  return pick(a, keywords);
}

/** Returns some keywords of a schema. */
function pick(schema: SchemaObject, keywords: readonly string[]): SchemaObject {
  return Object.fromEntries(Object.entries(schema).filter(([keyword]) => keywords.includes(keyword)));
}

/** Keywords that are merged with others, as members, items or `contains`. */
const GROUPED = [
  ...["properties", "additionalProperties", "patternProperties"],
  ...["items", "prefixItems", "contains", "minContains", "maxContains"],
];

/**
 * Returns the intersection of two schemas, or a superset; omitted keywords are recorded with `relax`. The result has no references and no
 * `allOf`, except below members, items and alternatives.
 */
function merged(a: Schema, b: Schema, context: Context): Schema {
  context.spent.pairs++;
  if (a === false || b === false) return false;
  if (context.depth > MAX_DEPTH) {
    context.relax("allOf", context.path, "schemas that must hold together refer to themselves");
    return true;
  }
  if (!isWithinLimits(context.spent)) {
    relaxAlternatives(context);
    return true;
  }
  if (a === true || isSameJson(a, b)) return isSchemaObject(b) ? expanded(b, context) : b;
  if (b === true) return expanded(a, context);
  const [left, right] = [expanded(a, context), expanded(b, context)];
  if (!isSchemaObject(left) || !isSchemaObject(right)) return merged(left, right, context);
  return mergedAlternatives(left, right, context) ?? mergedAlternatives(right, left, context) ?? mergedKeywords(left, right, context);
}

/** Merges each alternative of a schema with `anyOf` or `oneOf` with the other schema; returns null for a schema without alternatives. */
function mergedAlternatives(schema: SchemaObject, other: SchemaObject, context: Context): Schema | null {
  const keyword = ["anyOf", "oneOf"].find((each) => each in schema);
  if (keyword === undefined) return null;
  const options = toSchemas(schema[keyword], keyword, context.path);
  // The part that all alternatives have in common.
  const common = merged(omit(schema, keyword), other, context);
  const combinations = context.combinations * Math.max(1, options.length);
  if (context.combinations > 1 && combinations > MAX_COMBINATIONS) {
    relaxAlternatives(context);
    return common;
  }
  return asPrepared({ [keyword]: options.map((option) => merged(common, option, { ...deeper(context), combinations })) });
}

/** Merges two schemas without references, `allOf` and alternatives. */
function mergedKeywords(left: SchemaObject, right: SchemaObject, context: Context): Schema {
  const result: Record<string, unknown> = {
    ...mergedMembers(left, right, context),
    ...mergedItems(left, right, context),
    ...mergedContains(left, right, context),
  };
  for (const keyword of new Set([...Object.keys(left), ...Object.keys(right)])) {
    if (GROUPED.includes(keyword)) continue;
    const isInBoth = keyword in left && keyword in right;
    result[keyword] = isInBoth ? mergedKeyword(keyword, left[keyword], right[keyword], context) : (left[keyword] ?? right[keyword]);
  }
  return asPrepared(result);
}

/** Returns the context of a merge inside of another. */
function deeper(context: Context): Context {
  return { ...context, depth: context.depth + 1 };
}

/**
 * Returns a merged schema with `unevaluated`, the value of the keyword `unevaluatedProperties` or `unevaluatedItems`, as the schema of its
 * additional members or items, in each alternative. A schema that has such a keyword already keeps it.
 */
function withUnevaluated(schema: Schema, keyword: string, unevaluated: unknown): Schema {
  if (schema === false) return false;
  if (schema === true) return withUnevaluated({}, keyword, unevaluated);
  for (const either of ["anyOf", "oneOf"]) {
    const options = schema[either];
    if (Array.isArray(options))
      return asPrepared({ ...schema, [either]: options.map((each: Schema) => withUnevaluated(each, keyword, unevaluated)) });
  }
  const additional = keyword === "unevaluatedItems" ? "items" : "additionalProperties";
  return additional in schema ? schema : asPrepared({ ...schema, [additional]: unevaluated });
}

/** Returns a schema with the target of its reference and the parts of its `allOf` merged into it, and with `const` converted to `enum`. */
function expanded(given: SchemaObject, context: Context): Schema {
  const schema = assertionsOf(context.prepare(given, context.path));
  for (const keyword of ["unevaluatedProperties", "unevaluatedItems"]) {
    if (!(keyword in schema)) continue;
    context.relax(keyword, context.path, "other schemas that hold together with it decide what is evaluated");
    return withUnevaluated(expanded(asPrepared(omit(schema, keyword)), deeper(context)), keyword, schema[keyword]);
  }
  if ("$ref" in schema) {
    const { schema: target } = context.resolve(schema["$ref"], context.path);
    return merged(asPrepared(omit(schema, "$ref")), target, deeper(context));
  }
  if ("allOf" in schema) {
    const parts = toSchemas(schema["allOf"], "allOf", context.path);
    return parts.reduce((all, part) => merged(all, part, deeper(context)), asPrepared(omit(schema, "allOf")) as Schema);
  }
  if (!("const" in schema)) return asPrepared(schema);
  const values = [schema["const"]];
  const others = omit(schema, "const");
  return asPrepared({ ...others, enum: "enum" in others ? mergedValues(others["enum"], values, context) : values });
}

/** Merges schemas into one that accepts their intersection, or a superset; omitted keywords are recorded with `relax`. */
export function mergeSchemas(schemas: readonly Schema[], merging: Merging, path: string): Schema {
  const context = { ...merging, path, depth: 0, combinations: 1 };
  return schemas.reduce((all, schema) => merged(all, schema, context), true as Schema);
}
