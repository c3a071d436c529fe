/** Keys of object members that a schema does not name. */
import { MAX_GRAMMAR_STATES } from "../../check.ts";
import { choiceOf, sequence, text, type Expression } from "../../expression.ts";
import { ArgumentError } from "../../../../base/errors.ts";
import { spelledOtherThan } from "../json-text.ts";
import { regexLanguage } from "../regex.ts";
import type { Term } from "../regular/term.ts";
import type { SchemaCompiler } from "./compiler.ts";
import { refuse, toSchema, toSchemaMap, type Schema, type SchemaObject } from "./keywords.ts";
import { stringTerm } from "./strings.ts";
import { getOrInsert } from "../../../../base/util/values.ts";

/** Set of keys, including their quotes, and the schema of their members. */
export interface MemberKeys {
  readonly expression: Expression;
  readonly schema: Schema;
}

/** Maximum length of a name if other members are allowed, and number of its characters in one rule. */
const [MAX_NAME_LENGTH, CHARACTERS_OF_RULE] = [500, 50];
/** Maximum number of patterns that are distinguished; each subset of the patterns has its own keys. */
const MAX_PATTERNS = 4;
/** Maximum number of names that are excluded from the keys of a pattern. */
const MAX_EXCLUDED = 200;

/** Returns the expression of the remainder of a key, with its closing quote, that differs from the remainders of the names. */
function keyOtherThan(names: readonly string[], at: number, compiler: SchemaCompiler): Expression {
  const byFirst = new Map<number, string[]>();
  let isOver = false;
  for (const name of names) {
    const first = name.codePointAt(at);
    if (first === undefined) isOver = true;
    else getOrInsert(byFirst, first, () => []).push(name);
  }
  const longer = [...byFirst].map(([point, same]) => {
    const character = String.fromCodePoint(point);
    const next = at + character.length;
    const rest = () => keyOtherThan(same, next, compiler);
    const isSameRule = Math.floor(at / CHARACTERS_OF_RULE) === Math.floor(next / CHARACTERS_OF_RULE);
    return sequence(text(JSON.stringify(character).slice(1, -1)), isSameRule ? rest() : compiler.rule(rest));
  });
  return choiceOf([
    ...(isOver ? [] : [text('"')]),
    ...longer,
    sequence(spelledOtherThan([...byFirst.keys()], compiler.escapedCharacter), compiler.restOfKey),
  ]);
}

/** Returns the expression of all keys other than the names. */
function otherKeys(names: readonly string[], compiler: SchemaCompiler, path: string): Expression {
  if (names.some((name) => name.length > MAX_NAME_LENGTH))
    throw refuse("additionalProperties", path, `a name has more than ${MAX_NAME_LENGTH} characters, next to which there may be no others`);
  const characters = names.reduce((sum, name) => sum + name.length, 0);
  if (characters > MAX_GRAMMAR_STATES)
    throw new ArgumentError(
      `Expected the names of the schema at ${path} to have at most ${MAX_GRAMMAR_STATES} characters in all, got ${characters}`,
    );
  return sequence(text('"'), keyOtherThan(names, 0, compiler));
}

/** Rules for member names, from `patternProperties`, `propertyNames` and `additionalProperties`. */
export class KeyRules {
  readonly #compiler: SchemaCompiler;
  readonly #path: string;
  readonly #patterns: readonly { readonly term: Term; readonly isExact: boolean; readonly schema: Schema }[];
  readonly #names: Term | null;
  readonly #more: Schema;

  constructor(schema: SchemaObject, compiler: SchemaCompiler, path: string) {
    this.#compiler = compiler;
    this.#path = path;
    const { additionalProperties, propertyNames } = schema;
    this.#more = toSchema(additionalProperties ?? !compiler.closesObjects, "additionalProperties", path);
    const patterns = [...toSchemaMap(schema["patternProperties"], "patternProperties", path)];
    const name = `A pattern of the schema at ${path}/patternProperties`;
    this.#patterns = patterns.map(([pattern, each]) => {
      const { term, loose } = regexLanguage(pattern, compiler.languages.terms, { of: "part", name });
      return { term, isExact: loose === null, schema: each };
    });
    this.#names = propertyNames === undefined ? null : this.#nameTerm(toSchema(propertyNames, "propertyNames", path));
  }

  /**
   * Returns the language of the names that a schema allows; a superset, which is recorded with `relax`, if some of its keywords are not
   * regular.
   */
  #nameTerm(given: Schema): Term | null {
    const path = `${this.#path}/propertyNames`;
    const schema = this.#compiler.follow(given, path);
    const { terms } = this.#compiler.languages;
    if (schema === true) return null;
    if (schema === false || (schema["type"] !== undefined && ![schema["type"]].flat().includes("string"))) return terms.nothing;
    const { type: _, enum: values, ...rest } = schema;
    const own = stringTerm(rest, this.#compiler, path);
    const listed = Array.isArray(values)
      ? terms.or(values.filter((each) => typeof each === "string").map((each) => terms.text(each)))
      : null;
    const unknown = Object.keys(rest).find((keyword) => !["pattern", "format", "minLength", "maxLength", "not"].includes(keyword));
    if (unknown !== undefined) this.#compiler.relax("propertyNames", path, `\`${unknown}\` of names is checked at the end`);
    const parts = [own, listed].filter((part) => part !== null);
    return parts.length === 0 ? null : terms.and(parts);
  }

  /** Returns the schema of a named member; false if its name is not allowed. */
  schemaOf(name: string, own: Schema | undefined): Schema {
    const { languages } = this.#compiler;
    if (this.#names !== null && !languages.matches(this.#names, name)) return false;
    const found = this.#patterns.filter(({ term, isExact }) => isExact && languages.matches(term, name)).map(({ schema }) => schema);
    const base = own ?? (found.length > 0 ? true : this.#more);
    return found.length === 0 ? base : { allOf: [base, ...found] };
  }

  /** Returns the keys of members that the schema does not name, grouped by the schema of their values. */
  further(names: readonly string[]): readonly MemberKeys[] {
    const compiler = this.#compiler;
    if (this.#patterns.length === 0 && this.#more === false) return [];
    if (this.#patterns.length === 0 && this.#names === null)
      return [{ expression: otherKeys(names, compiler, this.#path), schema: this.#more }];
    return this.#byPattern(names) ?? this.#anyKey(names);
  }

  /** Returns the keys for each subset of the patterns; null if there are too many patterns or their automata are too large. */
  #byPattern(names: readonly string[]): readonly MemberKeys[] | null {
    const { languages, spell } = this.#compiler;
    const { terms } = languages;
    const patterns = this.#patterns;
    if (patterns.length > MAX_PATTERNS || names.length > MAX_EXCLUDED || !patterns.every(({ isExact }) => isExact)) return null;
    const excluded = names.length === 0 ? [] : [terms.not(terms.or(names.map((name) => terms.text(name))))];
    const result: MemberKeys[] = [];
    for (let set = 0; set < 1 << patterns.length; set++) {
      const of = patterns.filter((_, at) => set & (1 << at));
      const [only] = of;
      const schema: Schema = only === undefined ? this.#more : of.length === 1 ? only.schema : { allOf: of.map((each) => each.schema) };
      if (schema === false) continue;
      const without = patterns.filter((_, at) => !(set & (1 << at))).map(({ term }) => terms.not(term));
      const term = terms.and([...(this.#names === null ? [] : [this.#names]), ...excluded, ...of.map((each) => each.term), ...without]);
      if (term === terms.nothing) continue;
      const expression = languages.expression(term, spell);
      if (expression === null) return null;
      result.push({ expression: sequence(text('"'), expression, text('"')), schema });
    }
    return result;
  }

  /** Returns the keys that any pattern of a closed object may match, or else all keys, with values of any schema. */
  #anyKey(names: readonly string[]): readonly MemberKeys[] {
    const keyword = this.#patterns.length > 0 ? "patternProperties" : "propertyNames";
    this.#compiler.relax(keyword, this.#path, "its names have no automaton, or one of too many states");
    return [{ expression: this.#matchedKeys(names) ?? otherKeys(names, this.#compiler, this.#path), schema: true }];
  }

  /** Returns the keys of a closed object that its patterns may match; null for an open object, and without automaton. */
  #matchedKeys(names: readonly string[]): Expression | null {
    if (this.#more !== false || names.length > MAX_EXCLUDED) return null;
    const { languages, spell } = this.#compiler;
    const { terms } = languages;
    const excluded = names.length === 0 ? [] : [terms.not(terms.or(names.map((name) => terms.text(name))))];
    const matched = terms.or(this.#patterns.map(({ term }) => term));
    const term = terms.and([...(this.#names === null ? [] : [this.#names]), ...excluded, matched]);
    const expression = languages.expression(term, spell);
    return expression === null ? null : sequence(text('"'), expression, text('"'));
  }
}
