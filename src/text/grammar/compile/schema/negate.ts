/**
 * Negation of schemas. `not` remains only around a list of values, a pattern or a divisor: the compiler supports these forms, and turns
 * every other `not` into a schema without it.
 */
import {
  asList,
  assertionsOf,
  isSchemaObject,
  toNames,
  toSchema,
  toSchemaMap,
  toSchemas,
  valuesOf,
  type Schema,
  type SchemaObject,
} from "./keywords.ts";
import type { Prepare, Resolve } from "./prepare.ts";
import { zip } from "../../../../base/util/values.ts";

const TYPES = ["null", "boolean", "object", "array", "number", "string"];

/** Negation of a bound: the opposite keyword, with its value relative to the bound, and the type of the bounded values. */
const OPPOSITE_BOUNDS: Readonly<Record<string, readonly [type: string, keyword: string, shift: number]>> = {
  minimum: ["number", "exclusiveMaximum", 0],
  maximum: ["number", "exclusiveMinimum", 0],
  exclusiveMinimum: ["number", "maximum", 0],
  exclusiveMaximum: ["number", "minimum", 0],
  minLength: ["string", "maxLength", -1],
  maxLength: ["string", "minLength", 1],
  minItems: ["array", "maxItems", -1],
  maxItems: ["array", "minItems", 1],
  minProperties: ["object", "maxProperties", -1],
  maxProperties: ["object", "minProperties", 1],
};

/** Maximum depth to which schemas and references are followed. */
const MAX_DEPTH = 32;

/** Context for negating schemas of one document. */
export interface NegateContext {
  readonly resolve: Resolve;
  readonly prepare: Prepare;
  /** Position of the schema, for messages. */
  readonly path: string;
}

/** Returns the schema of all values that do not match `schema`; null if it is unknown. */
export function negated(schema: Schema, context: NegateContext, depth = 0): Schema | null {
  if (typeof schema === "boolean") return !schema;
  if (depth > MAX_DEPTH) return null;
  const asserted = assertionsOf(context.prepare(schema, context.path));
  // A value does not match if it violates any keyword.
  const alternatives: Schema[] = [];
  for (const keyword of Object.keys(asserted)) {
    const violations = negatedKeyword(keyword, asserted, context, depth);
    if (violations === null) return null;
    alternatives.push(...violations);
  }
  const [only = false] = alternatives;
  return alternatives.length > 1 ? { anyOf: alternatives } : only;
}

/** Returns alternatives that together negate one keyword; null if no schema expresses its negation. */
function negatedKeyword(keyword: string, schema: SchemaObject, context: NegateContext, depth: number): readonly Schema[] | null {
  const { path } = context;
  const value = schema[keyword];
  /** Returns the negations of all parts; null if one is unknown. */
  const negatedAll = (parts: readonly Schema[]): readonly Schema[] | null => {
    const negations = parts.map((part) => negated(part, context, depth + 1));
    return negations.includes(null) ? null : (negations as Schema[]);
  };
  const bound = OPPOSITE_BOUNDS[keyword];
  if (bound !== undefined) {
    const [type, oppositeKeyword, shift] = bound;
    if (typeof value !== "number") return null;
    // Nothing is shorter than a `minLength` of 0.
    const isImpossible = shift < 0 && value + shift < 0;
    return isImpossible ? [] : [{ type, [oppositeKeyword]: value + shift }];
  }
  switch (keyword) {
    case "type": {
      const types = asList(value);
      const hasOnlyIntegers = types.includes("integer") && !types.includes("number");
      const others = TYPES.filter((type) => !types.includes(type) && !(hasOnlyIntegers && type === "number"));
      const alternatives: Schema[] = others.length === 0 ? [] : [{ type: others }];
      if (hasOnlyIntegers) alternatives.push({ type: "number", not: { multipleOf: 1 } });
      return alternatives;
    }
    case "enum":
    case "const": {
      const values = valuesOf({ [keyword]: value });
      return values === null ? null : [{ not: { enum: values } }];
    }
    case "pattern":
      return [{ type: "string", not: { pattern: value } }];
    case "multipleOf":
      return [{ type: "number", not: { multipleOf: value } }];
    case "required":
      return toNames(value, keyword, path).map((name) => ({ type: "object", properties: { [name]: false } }));
    case "properties": {
      const members = toSchemaMap(value, keyword, path);
      const negations = negatedAll([...members.values()]);
      if (negations === null) return null;
      return zip([...members.keys()], negations).map(([name, negation]) => ({
        type: "object",
        required: [name],
        properties: { [name]: negation },
      }));
    }
    case "not":
      return [toSchema(value, keyword, path)];
    case "allOf":
      return negatedAll(toSchemas(value, keyword, path));
    case "anyOf": {
      const negations = negatedAll(toSchemas(value, keyword, path));
      return negations === null ? null : [{ allOf: negations }];
    }
    case "$ref":
      return negatedAll([context.resolve(value, path).schema]);
    default:
      return null;
  }
}

/**
 * Keywords that are kept under `not`, each only if the schema allows just one type: they do not apply to values of other types, which `not`
 * would therefore exclude.
 */
const ATOMS: Readonly<Record<string, { readonly type: string; readonly isValid: (value: unknown) => boolean }>> = {
  pattern: { type: "string", isValid: (value) => typeof value === "string" },
  multipleOf: { type: "number", isValid: (value) => typeof value === "number" },
};

/**
 * Whether a negated schema is kept under `not`: a list of values, or a single keyword of {@link ATOMS}.
 *
 * @param type - Type that the schema with the `not` allows.
 */
export function isAtom(schema: unknown, type: unknown): schema is SchemaObject {
  if (!isSchemaObject(schema)) return false;
  const [keyword = "", ...more] = Object.keys(schema);
  if (more.length > 0) return false;
  if (keyword === "enum") return Array.isArray(schema["enum"]);
  const atom = Object.hasOwn(ATOMS, keyword) ? ATOMS[keyword] : undefined;
  return atom !== undefined && atom.type === type && atom.isValid(schema[keyword]);
}
