/** Objects that a schema describes: members in the order of `properties`, then those that are required besides, then others. */
import { complement } from "../../../../engine/grammar/code-points.ts";
import { choice, EMPTY, NOTHING, optional, repeat, sequence, text, type Expression } from "../../../../engine/grammar/expression.ts";
import { spelled } from "../json-text.ts";
import { regexExpression } from "../regex.ts";
import type { SchemaCompiler } from "./compiler.ts";
import { invalid, isSchemaObject, refuse, toCount, toNames, toSchema, toSchemaMap, type Schema, type SchemaObject } from "./keywords.ts";

interface Member {
  readonly expression: Expression;
  readonly isRequired: boolean;
}

/** How the keys of members look that `properties` does not name, with their quotes. */
type Keys = { readonly expression: Expression; readonly schema: Schema };

/** What is left of a key, its closing quote included, of which the names that begin so are not the key. */
function keyOtherThan(names: readonly string[], compiler: SchemaCompiler): Expression {
  const byFirst = new Map<number, string[]>();
  for (const name of names) {
    const first = name.codePointAt(0);
    if (first === undefined) continue;
    const rest = name.slice(String.fromCodePoint(first).length);
    byFirst.set(first, [...(byFirst.get(first) ?? []), rest]);
  }
  const others = complement([...byFirst.keys()].map((point) => [point, point]));
  return choice(
    ...(names.includes("") ? [] : [text('"')]),
    ...[...byFirst].map(([point, rests]) => sequence(spelled([[point, point]]), keyOtherThan(rests, compiler))),
    sequence(spelled(others), compiler.restOfKey),
  );
}

/** The keys that the schema allows besides those it names; each has one spelling, so that none is a named one in disguise. */
function furtherKeys(schema: SchemaObject, names: readonly string[], compiler: SchemaCompiler, path: string): Keys {
  const more = schema["additionalProperties"];
  const rest = toSchema(more ?? !compiler.closesObjects, "additionalProperties", path);
  const patterns = [...toSchemaMap(schema["patternProperties"], "patternProperties", path)];
  const { propertyNames } = schema;
  const ofPattern = (pattern: string, keyword: string): Expression =>
    sequence(
      text('"'),
      regexExpression(pattern, { of: "part", spell: spelled, isStrict: true, name: `\`${keyword}\` of ${path}` }),
      text('"'),
    );
  const onlyType = (value: unknown): boolean => {
    if (value === undefined || value === true) return true;
    return isSchemaObject(value) && Object.keys(value).every((keyword) => keyword === "type") && value["type"] === "string";
  };
  if (patterns.length === 0 && onlyType(propertyNames))
    return { expression: sequence(text('"'), keyOtherThan(names, compiler)), schema: rest };
  if (names.length > 0)
    throw refuse(patterns.length > 0 ? "patternProperties" : "propertyNames", path, "`properties` or `required` stand beside it");
  if (patterns.length > 0) {
    if (!onlyType(propertyNames)) throw refuse("propertyNames", path, "`patternProperties` stand beside it");
    if (patterns.length > 1 || rest !== false)
      throw refuse("patternProperties", path, "only one pattern, with `additionalProperties: false`, is carried out");
    const [pattern, value] = patterns[0]!;
    return { expression: ofPattern(pattern, "patternProperties"), schema: value };
  }
  const { pattern, enum: values, type, ...others } = isSchemaObject(propertyNames) ? propertyNames : { not: propertyNames };
  const unknown = Object.keys(others)[0];
  if (unknown !== undefined || (type !== undefined && type !== "string") || (pattern === undefined) === (values === undefined))
    throw refuse("propertyNames", path, "only one `pattern` or `enum` is carried out");
  if (pattern === undefined)
    return {
      expression: choice(...toNames(values, "enum", `${path}/propertyNames`).map((key) => text(JSON.stringify(key)))),
      schema: rest,
    };
  if (typeof pattern !== "string") throw invalid("pattern", `${path}/propertyNames`, "a string", pattern);
  return { expression: ofPattern(pattern, "propertyNames"), schema: rest };
}

/** Whether counting members cannot fail, or how many further ones there may be. */
function furtherCounts(
  schema: SchemaObject,
  members: readonly Member[],
  mayHaveMore: boolean,
  path: string,
): { readonly min: number; readonly max: number | null } {
  const [min, max] = [toCount(schema, "minProperties", path) ?? 0, toCount(schema, "maxProperties", path)];
  const required = members.filter((member) => member.isRequired).length;
  if (members.length === 0 && min > 1)
    throw refuse("minProperties", path, "more than 1 would need members with different keys, which no grammar can tell");
  if (members.length === 0) return { min, max: max ?? null };
  if (min > required) throw refuse("minProperties", path, "it asks for more members than are required");
  if (max !== undefined && (mayHaveMore || max < members.length))
    throw refuse("maxProperties", path, "`properties` stand beside it and there may be more members");
  return { min: 0, max: null };
}

/** An object. */
export function objectOf(schema: SchemaObject, compiler: SchemaCompiler, path: string): Expression {
  const properties = toSchemaMap(schema["properties"], "properties", path);
  const required = toNames(schema["required"], "required", path);
  const names = [...new Set([...properties.keys(), ...required])];
  const { whitespace } = compiler.parts;
  const comma = sequence(text(","), whitespace);
  const member = (key: Expression, value: Schema, at: string): Expression =>
    compiler.rule(() => sequence(key, whitespace, text(":"), whitespace, compiler.compile(value, `${path}/${at}`), whitespace));

  const further = furtherKeys(schema, names, compiler, path);
  const members = names.map((name): Member => ({
    expression: member(text(JSON.stringify(name)), properties.get(name) ?? further.schema, `properties/${name}`),
    isRequired: required.includes(name),
  }));
  const mayHaveMore = further.schema !== false;
  const { min, max } = furtherCounts(schema, members, mayHaveMore, path);
  const more = member(mayHaveMore ? further.expression : NOTHING, further.schema, "additionalProperties");

  // From the last member to the first: what may follow after one, and what an object without one so far may hold.
  let after: Expression = mayHaveMore && max !== 0 ? repeat(sequence(comma, more), 0, max === null ? null : max - 1) : EMPTY;
  let first: Expression = !mayHaveMore || max === 0 ? (min > 0 ? NOTHING : EMPTY) : sequence(more, after);
  if (min === 0) first = optional(first);
  for (const { expression, isRequired } of members.toReversed()) {
    const [thenAfter, thenFirst] = [after, first];
    first = compiler.rule(() => (isRequired ? sequence(expression, thenAfter) : choice(sequence(expression, thenAfter), thenFirst)));
    const one = sequence(comma, expression, thenAfter);
    after = compiler.rule(() => (isRequired ? one : choice(one, thenAfter)));
  }
  return sequence(text("{"), whitespace, first, text("}"));
}
