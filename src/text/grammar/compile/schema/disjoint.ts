/**
 * Disjointness of schemas, as far as it can be determined without search; needed for `oneOf`. The functions of this file first test whether
 * alternatives share no value, then try to make them disjoint by their tags, then by excluding the other alternatives.
 */
import type { SchemaLookup } from "./finite.ts";
import { canonicalJson, isSchemaObject, toNames, toSchemaMap, toSchemas, valuesOf, type Schema, type SchemaObject } from "./keywords.ts";
import { mergeSchemas, type Merging } from "./merge.ts";
import { negated } from "./negate.ts";
import { asPrepared } from "./prepare.ts";
import { getOrInsert, itemAt } from "../../../../base/util/values.ts";

const TYPES = ["null", "boolean", "object", "array", "number", "string"];

/** Returns the JSON type of a value. */
function typeOf(value: unknown): string {
  if (value === null) return "null";
  return Array.isArray(value) ? "array" : typeof value;
}

/** Returns the types that a schema allows, with `number` for `integer`. */
function typesOf(schema: SchemaObject): readonly string[] {
  const values = valuesOf(schema);
  if (values !== null) return values.map(typeOf);
  const { type } = schema;
  if (type === undefined) return TYPES;
  const types = typeof type === "string" ? [type] : toNames(type, "type", "");
  return types.map((name) => (name === "integer" ? "number" : name));
}

/** Returns the schemas of the members that an object must have; null if the schema allows other values than objects. */
function requiredMembers(schema: SchemaObject): ReadonlyMap<string, Schema> | null {
  if (typesOf(schema).some((type) => type !== "object") || valuesOf(schema) !== null) return null;
  const properties = toSchemaMap(schema["properties"], "properties", "");
  return new Map(
    toNames(schema["required"], "required", "").flatMap((name) => {
      const member = properties.get(name);
      return member === undefined ? [] : [[name, member]];
    }),
  );
}

/** Whether one object schema requires a member that the other forbids. */
function requiresAbsent(a: SchemaObject, b: SchemaObject): boolean {
  if (b["additionalProperties"] !== false || b["patternProperties"] !== undefined) return false;
  const properties = toSchemaMap(b["properties"], "properties", "");
  return toNames(a["required"], "required", "").some((name) => !properties.has(name));
}

/** Maximum number of comparisons for one keyword. */
const MAX_COMPARISONS = 500_000;
/** Maximum depth of members that are compared. */
const MAX_DEPTH = 16;

/** Comparison of schemas with each other, with a shared limit on the number of comparisons. */
class Comparison {
  #comparisons = 0;
  /** Results of {@link requiredMembers}. */
  readonly #members = new Map<SchemaObject, ReadonlyMap<string, Schema> | null>();
  readonly #lookup: SchemaLookup;
  readonly #path: string;

  constructor(lookup: SchemaLookup, path: string) {
    this.#lookup = lookup;
    this.#path = path;
  }

  #membersOf(schema: SchemaObject): ReadonlyMap<string, Schema> | null {
    return getOrInsert(this.#members, schema, () => requiredMembers(schema));
  }

  /**
   * Whether two schemas share no value: they have different types, different constants, or are both objects with a required member for
   * which this holds. False means only that disjointness was not established.
   */
  areDisjoint(a: Schema, b: Schema, depth = 0): boolean {
    this.#comparisons++;
    if (this.#comparisons > MAX_COMPARISONS || depth > MAX_DEPTH) return false;
    if (a === false || b === false) return true;
    if (!isSchemaObject(a) || !isSchemaObject(b)) return false;
    const [valuesOfA, valuesOfB] = [valuesOf(a), valuesOf(b)];
    this.#comparisons += (valuesOfA?.length ?? 0) + (valuesOfB?.length ?? 0);
    const typesOfB = new Set(typesOf(b));
    if (!typesOf(a).some((type) => typesOfB.has(type))) return true;
    if (valuesOfA !== null && valuesOfB !== null) {
      const textsOfB = new Set(valuesOfB.map(canonicalJson));
      return !valuesOfA.some((value) => textsOfB.has(canonicalJson(value)));
    }
    const [membersOfA, membersOfB] = [this.#membersOf(a), this.#membersOf(b)];
    if (membersOfA === null || membersOfB === null) return false;
    if (requiresAbsent(a, b) || requiresAbsent(b, a)) return true;
    this.#comparisons += membersOfA.size;
    const follow = (schema: Schema): Schema => this.#lookup.follow(schema, this.#path);
    return [...membersOfA].some(([name, memberOfA]) => {
      const memberOfB = membersOfB.get(name);
      return memberOfB !== undefined && this.areDisjoint(follow(memberOfA), follow(memberOfB), depth + 1);
    });
  }
}

/** Whether no two of the schemas share a value; false if unknown. References must be resolved before. */
export function areAllDisjoint(schemas: readonly Schema[], lookup: SchemaLookup, path: string): boolean {
  const valueLists = schemas.map((schema) => (isSchemaObject(schema) ? valuesOf(schema)?.map(canonicalJson) : undefined));
  // Constants are compared in one set, for lists of any length; a duplicate within one list does not count as an overlap.
  if (valueLists.every((list) => list !== undefined)) {
    const values = valueLists.flatMap((list) => [...new Set(list)]);
    return new Set(values).size === values.length;
  }
  const comparison = new Comparison(lookup, path);
  return schemas.every((a, at) => schemas.slice(0, at).every((b) => comparison.areDisjoint(a, b)));
}

/** Maximum depth of nested unions that are compared. */
const MAX_UNIONS = 4;

/**
 * Returns the schemas of a union, with nested unions (schemas with only `anyOf` or `oneOf`) flattened. References must be resolved before.
 */
export function flattened(schemas: readonly Schema[], lookup: SchemaLookup, path: string, depth = 0): readonly Schema[] {
  return schemas.flatMap((schema): readonly Schema[] => {
    if (!isSchemaObject(schema)) return [schema];
    const { anyOf, oneOf, ...rest } = schema;
    const either = anyOf ?? oneOf;
    if (!Array.isArray(either) || Object.keys(rest).length > 0 || depth > MAX_UNIONS) return [schema];
    const options = toSchemas(either, "anyOf", path).map((option) => lookup.follow(option, path));
    return flattened(options, lookup, path, depth + 1);
  });
}

/** Maximum number of members that are tried as tags. */
const MAX_TAGS = 8;

/**
 * Makes the members required that distinguish the schemas of a union: optional tags, for example tags with a default.
 *
 * @returns The changed schemas, which are disjoint; null if no such members are found.
 */
export function withTags(schemas: readonly Schema[], lookup: SchemaLookup, path: string): Schema[] | null {
  const valuesOfMember = (schema: SchemaObject, name: string): readonly unknown[] | null => {
    const member = toSchemaMap(schema["properties"], "properties", path).get(name);
    const tag = member === undefined ? undefined : lookup.follow(member, path);
    return isSchemaObject(tag) ? valuesOf(tag) : null;
  };
  /** Returns the schemas with the chosen members required; null if they are not disjoint. */
  const requiring = (choose: (schema: SchemaObject) => readonly string[]): Schema[] | null => {
    const tagged = schemas.map((schema): Schema => {
      const names = isSchemaObject(schema) ? choose(schema) : [];
      if (!isSchemaObject(schema) || names.length === 0) return schema;
      return asPrepared({ ...schema, required: [...new Set([...toNames(schema["required"], "required", path), ...names])] });
    });
    return areAllDisjoint(tagged, lookup, path) ? tagged : null;
  };
  const namesOf = (schema: SchemaObject): string[] => [...toSchemaMap(schema["properties"], "properties", path).keys()];
  const [first] = schemas;
  if (!isSchemaObject(first)) return null;
  const candidates = namesOf(first).filter((name) => valuesOfMember(first, name) !== null);
  for (const name of candidates.slice(0, MAX_TAGS)) {
    const tagged = requiring((schema) => (valuesOfMember(schema, name) === null ? [] : [name]));
    if (tagged !== null) return tagged;
  }
  // Nested unions have a tag each.
  return requiring((schema) => namesOf(schema).filter((name) => valuesOfMember(schema, name)?.length === 1));
}

/** Maximum number of schemas that are made exclusive: each is merged with the negation of every other. */
const MAX_EXCLUSIVE = 16;
/** Maximum number of alternatives of all exclusive schemas together: the alternatives of negations multiply. */
const MAX_ALTERNATIVES = 64;

/** Returns the number of alternatives of a schema, with nested ones. */
function alternativesOf(schema: Schema | null): number {
  if (!isSchemaObject(schema) || !Array.isArray(schema["anyOf"])) return 1;
  return (schema["anyOf"] as readonly Schema[]).reduce((sum, option) => sum + alternativesOf(option), 0);
}

/**
 * Makes the options of a `oneOf` disjoint: returns for each a schema of the values that match this option and no other one.
 *
 * @param options - Options as in the schema; their negations exclude the other options.
 * @param followed - The same options with references resolved, and merged with the keywords next to the `oneOf`.
 * @returns The schemas; null if there are too many options or alternatives, or if the negation of an overlapping option is unknown.
 */
export function exclusiveOptions(
  options: readonly Schema[],
  followed: readonly Schema[],
  merging: Merging,
  lookup: SchemaLookup,
  path: string,
): Schema[] | null {
  if (options.length > MAX_EXCLUSIVE) return null;
  const comparison = new Comparison(lookup, path);
  const negations = options.map((option) => negated(option, { ...merging, path }));
  /** For each option, the negations of the options that it overlaps with. */
  const exclusions = followed.map((option, at) =>
    negations.filter((_, other) => other !== at && !comparison.areDisjoint(option, itemAt(followed, other))),
  );
  if (exclusions.some((schemas) => schemas.includes(null))) return null;
  const alternatives = exclusions.map((schemas) => schemas.reduce((product, schema) => product * alternativesOf(schema), 1));
  if (alternatives.reduce((sum, count) => sum + count, 0) > MAX_ALTERNATIVES) return null;
  return followed.map((option, at) => mergeSchemas([option, ...(exclusions[at] as Schema[])], merging, path));
}
