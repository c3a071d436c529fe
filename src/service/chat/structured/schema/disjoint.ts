/** Whether no value fits two schemas at once, where that is plain to see. */
import { canonicalJson, isSchemaObject, toNames, toSchemaMap, type Schema, type SchemaObject } from "./keywords.ts";

const TYPES = ["null", "boolean", "object", "array", "number", "string"];

function typeOf(value: unknown): string {
  if (value === null) return "null";
  return Array.isArray(value) ? "array" : typeof value;
}

function valuesOf(schema: SchemaObject): readonly unknown[] | null {
  if ("const" in schema) return [schema["const"]];
  return Array.isArray(schema["enum"]) ? schema["enum"] : null;
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

/** Comparisons that one keyword may cost. */
const MAX_COMPARISONS = 2_000_000;

/** What was looked at so far, and what was found of it. */
interface Seen {
  comparisons: number;
  readonly members: Map<SchemaObject, ReadonlyMap<string, Schema> | null>;
}

/**
 * Whether no two of some schemas share a value, as far as {@link areDisjoint} sees; null where that takes too long to find out.
 * References must have been followed before.
 */
export function areAllDisjoint(schemas: readonly Schema[]): boolean | null {
  const values = schemas.map((schema) => (isSchemaObject(schema) ? valuesOf(schema)?.map(canonicalJson) : undefined));
  // Lists of constants are looked at together, however long: a value twice in one of them is no overlap.
  if (values.every((each) => each !== undefined)) {
    const each = values.flatMap((list) => [...new Set(list)]);
    return new Set(each).size === each.length;
  }
  const seen: Seen = { comparisons: 0, members: new Map() };
  for (const [at, a] of schemas.entries())
    for (let before = 0; before < at; before++) {
      if (!areDisjoint(a, schemas[before]!, seen)) return seen.comparisons > MAX_COMPARISONS ? null : false;
    }
  return true;
}

/**
 * Whether two schemas share no value: other types, other constants, or an object's required member of which the same is true.
 * False means only that it was not seen.
 */
function areDisjoint(a: Schema, b: Schema, seen: Seen): boolean {
  if (++seen.comparisons > MAX_COMPARISONS) return false;
  if (a === false || b === false) return true;
  if (!isSchemaObject(a) || !isSchemaObject(b)) return false;
  const [left, right] = [valuesOf(a), valuesOf(b)];
  seen.comparisons += (left?.length ?? 0) + (right?.length ?? 0);
  const types = new Set(typesOf(b));
  if (!typesOf(a).some((type) => types.has(type))) return true;
  if (left !== null && right !== null) {
    const others = new Set(right.map(canonicalJson));
    return !left.some((value) => others.has(canonicalJson(value)));
  }
  const membersOf = (schema: SchemaObject): ReadonlyMap<string, Schema> | null => {
    const found = seen.members.has(schema) ? seen.members.get(schema)! : requiredMembers(schema);
    seen.members.set(schema, found);
    return found;
  };
  const [members, others] = [membersOf(a), membersOf(b)];
  if (members === null || others === null) return false;
  seen.comparisons += members.size;
  return [...members].some(([name, schema]) => others.has(name) && areDisjoint(schema, others.get(name)!, seen));
}
