/** Objects that a schema describes: members in the order of `properties`, then those that are required besides, then others. */
import { MAX_GRAMMAR_STATES } from "../../../../engine/grammar/check.ts";
import {
  choice,
  choiceOf,
  EMPTY,
  NOTHING,
  optional,
  repeat,
  sequence,
  text,
  type Expression,
} from "../../../../engine/grammar/expression.ts";
import { ArgumentError } from "../../../../errors.ts";
import { spelled, spelledOtherThan } from "../json-text.ts";
import { regexExpression } from "../regex.ts";
import type { SchemaCompiler } from "./compiler.ts";
import { invalid, isSchemaObject, refuse, toCount, toNames, toSchema, toSchemaMap, type Schema, type SchemaObject } from "./keywords.ts";

interface Member {
  readonly expression: Expression;
  readonly isRequired: boolean;
}

/** How the keys of members look that `properties` does not name, with their quotes. */
type Keys = { readonly expression: Expression; readonly schema: Schema };

/** The longest name beside which other members may stand, and how many of its characters make one rule. */
const [MAX_NAME_LENGTH, CHARACTERS_OF_RULE] = [500, 50];

/** What is left of a key, its closing quote included, of which the names that go on so are not the key. */
function keyOtherThan(names: readonly string[], at: number, compiler: SchemaCompiler): Expression {
  const byFirst = new Map<number, string[]>();
  let isOver = false;
  for (const name of names) {
    const first = name.codePointAt(at);
    if (first === undefined) isOver = true;
    else if (byFirst.has(first)) byFirst.get(first)!.push(name);
    else byFirst.set(first, [name]);
  }
  const goingOn = [...byFirst].map(([point, same]) => {
    const character = String.fromCodePoint(point);
    const next = at + character.length;
    const rest = () => keyOtherThan(same, next, compiler);
    const isSameRule = Math.floor(at / CHARACTERS_OF_RULE) === Math.floor(next / CHARACTERS_OF_RULE);
    return sequence(text(JSON.stringify(character).slice(1, -1)), isSameRule ? rest() : compiler.rule(rest));
  });
  return choiceOf([
    ...(isOver ? [] : [text('"')]),
    ...goingOn,
    sequence(spelledOtherThan([...byFirst.keys()], compiler.escapedCharacter), compiler.restOfKey),
  ]);
}

/** The keys that are none of the names. */
function otherKeys(names: readonly string[], compiler: SchemaCompiler, path: string): Expression {
  if (names.some((name) => name.length > MAX_NAME_LENGTH))
    throw refuse("additionalProperties", path, `a name has more than ${MAX_NAME_LENGTH} characters, beside which there may be no others`);
  const characters = names.reduce((sum, name) => sum + name.length, 0);
  if (characters > MAX_GRAMMAR_STATES)
    throw new ArgumentError(
      `Expected the names of the schema at ${path} to have at most ${MAX_GRAMMAR_STATES} characters in all, got ${characters}`,
    );
  return sequence(text('"'), keyOtherThan(names, 0, compiler));
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
    return { expression: rest === false ? NOTHING : otherKeys(names, compiler, path), schema: rest };
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
      expression: choiceOf(toNames(values, "enum", `${path}/propertyNames`).map((key) => text(JSON.stringify(key)))),
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
  const isRequired = new Set(required);
  const names = [...new Set([...properties.keys(), ...required])];
  const { whitespace } = compiler.parts;
  const comma = sequence(text(","), whitespace);
  const member = (key: Expression, value: Schema, at: string): Expression =>
    compiler.rule(() => sequence(key, whitespace, text(":"), whitespace, compiler.compile(value, `${path}/${at}`), whitespace));

  const further = furtherKeys(schema, names, compiler, path);
  const members = names.map((name): Member => ({
    expression: member(text(JSON.stringify(name)), properties.get(name) ?? further.schema, `properties/${name}`),
    isRequired: isRequired.has(name),
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
