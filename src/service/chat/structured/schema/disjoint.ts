/** Whether no value fits two schemas at once, where that is plain to see. */
import type { Look } from "./finite.ts";
import { canonicalJson, isSchemaObject, toNames, toSchemaMap, toSchemas, valuesOf, type Schema, type SchemaObject } from "./keywords.ts";
import { asPrepared } from "./prepare.ts";

const TYPES = ["null", "boolean", "object", "array", "number", "string"];

function typeOf(value: unknown): string {
  if (value === null) return "null";
  return Array.isArray(value) ? "array" : typeof value;
}

function typesOf(schema: SchemaObject): readonly string[] {
  const values = valuesOf(schema);
  if (values !== null) return values.map(typeOf);
  const { type } = schema;
  const types = type === undefined ? TYPES : typeof type === "string" ? [type] : toNames(type, "type", "");
  return types.map((each) => (each === "integer" ? "number" : each));
}

/** The schemas of the members that an object must have; null where other values than objects fit. */
function requiredMembers(schema: SchemaObject): ReadonlyMap<string, Schema> | null {
  if (typesOf(schema).some((type) => type !== "object") || valuesOf(schema) !== null) return null;
  const properties = toSchemaMap(schema["properties"], "properties", "");
  return new Map(
    toNames(schema["required"], "required", "").flatMap((name) => (properties.has(name) ? [[name, properties.get(name)!]] : [])),
  );
}

/** Whether a member that one object schema requires is not allowed by another. */
function requiresAbsent(a: SchemaObject, b: SchemaObject): boolean {
  if (b["additionalProperties"] !== false || b["patternProperties"] !== undefined) return false;
  const properties = toSchemaMap(b["properties"], "properties", "");
  return toNames(a["required"], "required", "").some((name) => !properties.has(name));
}

/** Comparisons that one keyword may cost. */
const MAX_COMPARISONS = 500_000;

/** One comparison of schemas with each other. */
class Comparison {
  #comparisons = 0;
  readonly #members = new Map<SchemaObject, ReadonlyMap<string, Schema> | null>();
  readonly #look: Look;
  readonly #path: string;

  constructor(look: Look, path: string) {
    this.#look = look;
    this.#path = path;
  }

  #membersOf(schema: SchemaObject): ReadonlyMap<string, Schema> | null {
    const known = this.#members.get(schema);
    if (known !== undefined) return known;
    const members = requiredMembers(schema);
    this.#members.set(schema, members);
    return members;
  }

  /**
   * Whether two schemas share no value: other types, other constants, or a required member of both objects of which the same is true.
   * False means only that it was not seen.
   */
  areDisjoint(a: Schema, b: Schema, depth = 0): boolean {
    if (++this.#comparisons > MAX_COMPARISONS || depth > MAX_DEPTH) return false;
    if (a === false || b === false) return true;
    if (!isSchemaObject(a) || !isSchemaObject(b)) return false;
    const [left, right] = [valuesOf(a), valuesOf(b)];
    this.#comparisons += (left?.length ?? 0) + (right?.length ?? 0);
    const types = new Set(typesOf(b));
    if (!typesOf(a).some((type) => types.has(type))) return true;
    if (left !== null && right !== null) {
      const others = new Set(right.map(canonicalJson));
      return !left.some((value) => others.has(canonicalJson(value)));
    }
    const [members, others] = [this.#membersOf(a), this.#membersOf(b)];
    if (members === null || others === null) return false;
    if (requiresAbsent(a, b) || requiresAbsent(b, a)) return true;
    this.#comparisons += members.size;
    const follow = (schema: Schema) => this.#look.follow(schema, this.#path);
    return [...members].some(
      ([name, schema]) => others.has(name) && this.areDisjoint(follow(schema), follow(others.get(name)!), depth + 1),
    );
  }
}

/** Depth of members that are compared. */
const MAX_DEPTH = 16;

/** Whether no two of some schemas share a value, as far as that is plain to see. References must have been followed before. */
export function areAllDisjoint(schemas: readonly Schema[], look: Look, path: string): boolean {
  const values = schemas.map((schema) => (isSchemaObject(schema) ? valuesOf(schema)?.map(canonicalJson) : undefined));
  // Lists of constants are compared together, however long: a value twice in one of them is no overlap.
  if (values.every((each) => each !== undefined)) {
    const each = values.flatMap((list) => [...new Set(list)]);
    return new Set(each).size === each.length;
  }
  const comparison = new Comparison(look, path);
  return schemas.every((a, at) => schemas.slice(0, at).every((b) => comparison.areDisjoint(a, b)));
}

/** Depth of unions in unions that are compared. */
const MAX_UNIONS = 4;

/** The schemas of a union, those of unions in it included. References must have been followed before. */
export function flattened(schemas: readonly Schema[], look: Look, path: string, depth = 0): readonly Schema[] {
  return schemas.flatMap((schema): readonly Schema[] => {
    if (!isSchemaObject(schema)) return [schema];
    const { anyOf, oneOf, ...rest } = schema;
    const either = anyOf ?? oneOf;
    if (!Array.isArray(either) || Object.keys(rest).length > 0 || depth > MAX_UNIONS) return [schema];
    const options = toSchemas(either, "anyOf", path).map((option) => look.follow(option, path));
    return flattened(options, look, path, depth + 1);
  });
}

/** Members of which no more are tried as tags. */
const MAX_TAGS = 8;

/**
 * The schemas of a union with members required that tell them apart: optional tags, as with a default. Null without such members.
 */
export function withTags(schemas: readonly Schema[], look: Look, path: string): Schema[] | null {
  const valuesOfMember = (schema: SchemaObject, name: string): readonly unknown[] | null => {
    const own = toSchemaMap(schema["properties"], "properties", path).get(name);
    const tag = own === undefined ? undefined : look.follow(own, path);
    return isSchemaObject(tag) ? valuesOf(tag) : null;
  };
  const requiring = (choose: (schema: SchemaObject) => readonly string[]): Schema[] | null => {
    const tagged = schemas.map((schema): Schema => {
      const names = isSchemaObject(schema) ? choose(schema) : [];
      if (!isSchemaObject(schema) || names.length === 0) return schema;
      return asPrepared({ ...schema, required: [...new Set([...toNames(schema["required"], "required", path), ...names])] });
    });
    return areAllDisjoint(tagged, look, path) ? tagged : null;
  };
  const namesOf = (schema: SchemaObject): string[] => [...toSchemaMap(schema["properties"], "properties", path).keys()];
  const [first] = schemas;
  if (!isSchemaObject(first)) return null;
  const candidates = namesOf(first).filter((name) => valuesOfMember(first, name) !== null);
  for (const name of candidates.slice(0, MAX_TAGS)) {
    const tagged = requiring((schema) => (valuesOfMember(schema, name) === null ? [] : [name]));
    if (tagged !== null) return tagged;
  }
  // Unions in unions have a tag each.
  return requiring((schema) => namesOf(schema).filter((name) => valuesOfMember(schema, name)?.length === 1));
}
