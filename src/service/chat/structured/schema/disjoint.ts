/** Whether no value fits two schemas at once, where that is plain to see. */
import { isSameJson, isSchemaObject, toNames, toSchemaMap, type Schema, type SchemaObject } from "./keywords.ts";

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

/**
 * Whether two schemas share no value: other types, other constants, or an object's required member of which the same is true.
 * False means only that it was not seen. References must have been followed before.
 */
export function areDisjoint(a: Schema, b: Schema): boolean {
  if (a === false || b === false) return true;
  if (!isSchemaObject(a) || !isSchemaObject(b)) return false;
  if (!typesOf(a).some((type) => typesOf(b).includes(type))) return true;
  const [left, right] = [valuesOf(a), valuesOf(b)];
  if (left !== null && right !== null) return !left.some((value) => right.some((other) => isSameJson(value, other)));
  const [members, others] = [requiredMembers(a), requiredMembers(b)];
  if (members === null || others === null) return false;
  return [...members].some(([name, schema]) => others.has(name) && areDisjoint(schema, others.get(name)!));
}
