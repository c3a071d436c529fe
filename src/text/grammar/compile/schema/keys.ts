/** Keys of object members, and the schemas of their values: named members, members that match a pattern, and additional members. */
import { MAX_GRAMMAR_STATES } from "../../check.ts";
import { choiceOf, sequence, text, type Expression } from "../../expression.ts";
import { ArgumentError } from "../../../../base/errors.ts";
import { spelledOtherThan } from "../json-text.ts";
import { regexLanguage } from "../regex.ts";
import type { Term } from "../regular/term.ts";
import type { SchemaCompiler } from "./compiler.ts";
import { unenforceable, toSchema, toSchemaMap, type Schema, type SchemaObject } from "./keywords.ts";
import { stringTerm } from "./strings.ts";
import { getOrInsert } from "../../../../base/util/values.ts";

/** Set of keys, including their quotes, and the schema of their members. */
export interface MemberKeys {
  readonly expression: Expression;
  readonly schema: Schema;
}

/** Maximum length of a name if additional members are allowed, in UTF-16 units. */
const MAX_NAME_LENGTH = 500;
/** Number of a name's UTF-16 units in one rule, which bounds the nesting of expressions. */
const UNITS_OF_RULE = 50;
/** Maximum number of patterns that are distinguished; each subset of the patterns has its own keys. */
const MAX_PATTERNS = 4;
/** Maximum number of names that are excluded from the keys of a pattern. */
const MAX_EXCLUDED = 200;

/**
 * Returns the expression of the remainder of a key, with its closing quote, such that the key differs from all names.
 *
 * @param names - Names with the same first `at` UTF-16 units as the key.
 */
function keyOtherThan(names: readonly string[], at: number, compiler: SchemaCompiler): Expression {
  const byNextPoint = new Map<number, string[]>();
  /** Whether the key so far is one of the names, so that it must not end here. */
  let isName = false;
  for (const name of names) {
    const point = name.codePointAt(at);
    if (point === undefined) isName = true;
    else getOrInsert(byNextPoint, point, () => []).push(name);
  }
  const sharedPrefixes = [...byNextPoint].map(([point, longerNames]) => {
    const character = String.fromCodePoint(point);
    const nextAt = at + character.length;
    const remainder = (): Expression => keyOtherThan(longerNames, nextAt, compiler);
    const isSameRule = Math.floor(at / UNITS_OF_RULE) === Math.floor(nextAt / UNITS_OF_RULE);
    return sequence(text(JSON.stringify(character).slice(1, -1)), isSameRule ? remainder() : compiler.rule(remainder));
  });
  const points = [...byNextPoint.keys()].sort((a, b) => a - b);
  const otherCharacter = getOrInsert(compiler.otherCharacters, points.join(), () => spelledOtherThan(points, compiler.escapedCharacter));
  return choiceOf([...(isName ? [] : [text('"')]), ...sharedPrefixes, sequence(otherCharacter, compiler.restOfKey)]);
}

/** Returns the expression of all keys, including their quotes, other than the names. */
function otherKeys(names: readonly string[], compiler: SchemaCompiler, path: string): Expression {
  if (names.some((name) => name.length > MAX_NAME_LENGTH))
    throw unenforceable(
      "additionalProperties",
      path,
      `a name has more than ${MAX_NAME_LENGTH} characters, next to which there may be no others`,
    );
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
  /** Patterns of `patternProperties`; one that is not exact has a superset as its term. */
  readonly #patterns: readonly { readonly term: Term; readonly isExact: boolean; readonly schema: Schema }[];
  /** Names that `propertyNames` allows; null if it allows all. */
  readonly #allowedNames: Term | null;
  /** Schema of members that neither a name nor a pattern covers; false if there may be none. */
  readonly #additional: Schema;

  constructor(schema: SchemaObject, compiler: SchemaCompiler, path: string) {
    this.#compiler = compiler;
    this.#path = path;
    const { additionalProperties, propertyNames } = schema;
    this.#additional = toSchema(additionalProperties ?? !compiler.closesObjects, "additionalProperties", path);
    const patterns = [...toSchemaMap(schema["patternProperties"], "patternProperties", path)];
    const name = `A pattern of the schema at ${path}/patternProperties`;
    this.#patterns = patterns.map(([pattern, each]) => {
      const { term, loose } = regexLanguage(pattern, compiler.languages.terms, { of: "part", name });
      return { term, isExact: loose === null, schema: each };
    });
    this.#allowedNames = propertyNames === undefined ? null : this.#nameTerm(toSchema(propertyNames, "propertyNames", path));
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
    const { type: _, enum: values, ...others } = schema;
    const parts: Term[] = [];
    const ofKeywords = stringTerm(others, this.#compiler, path);
    if (ofKeywords !== null) parts.push(ofKeywords);
    if (Array.isArray(values)) parts.push(terms.or(values.filter((value) => typeof value === "string").map((value) => terms.text(value))));
    const unknown = Object.keys(others).find((keyword) => !["pattern", "format", "minLength", "maxLength", "not"].includes(keyword));
    if (unknown !== undefined) this.#compiler.relax("propertyNames", path, `\`${unknown}\` of names is checked at the end`);
    return parts.length === 0 ? null : terms.and(parts);
  }

  /**
   * Returns the schema of a named member; false if its name is not allowed.
   *
   * @param declared - Its schema in `properties`; undefined for a name that only `required` lists.
   */
  schemaOf(name: string, declared: Schema | undefined): Schema {
    const { languages } = this.#compiler;
    if (this.#allowedNames !== null && !languages.matches(this.#allowedNames, name)) return false;
    const ofPatterns = this.#patterns.filter(({ term, isExact }) => isExact && languages.matches(term, name)).map(({ schema }) => schema);
    if (ofPatterns.length === 0) return declared ?? this.#additional;
    return { allOf: [declared ?? true, ...ofPatterns] };
  }

  /** Returns the keys of members other than `names`, which the schema names, grouped by the schema of their values. */
  additional(names: readonly string[]): readonly MemberKeys[] {
    const compiler = this.#compiler;
    if (this.#patterns.length === 0 && this.#additional === false) return [];
    if (this.#patterns.length === 0 && this.#allowedNames === null)
      return [{ expression: otherKeys(names, compiler, this.#path), schema: this.#additional }];
    return this.#byPattern(names) ?? this.#anyKey(names);
  }

  /** Returns the keys for each subset of the patterns; null if there are too many patterns or their automata are too large. */
  #byPattern(names: readonly string[]): readonly MemberKeys[] | null {
    const { languages, spell } = this.#compiler;
    const { terms } = languages;
    const patterns = this.#patterns;
    if (patterns.length > MAX_PATTERNS || names.length > MAX_EXCLUDED || !patterns.every(({ isExact }) => isExact)) return null;
    const allowed = this.#allowedExcept(names);
    const result: MemberKeys[] = [];
    for (let subset = 0; subset < 1 << patterns.length; subset++) {
      const matching = patterns.filter((_, at) => subset & (1 << at));
      const schema = this.#schemaOfMatching(matching.map((pattern) => pattern.schema));
      if (schema === false) continue;
      const notMatching = patterns.filter((_, at) => !(subset & (1 << at))).map((pattern) => terms.not(pattern.term));
      const term = terms.and([...allowed, ...matching.map((pattern) => pattern.term), ...notMatching]);
      if (term === terms.nothing) continue;
      const expression = languages.expression(term, spell);
      if (expression === null) return null;
      result.push({ expression: sequence(text('"'), expression, text('"')), schema });
    }
    return result;
  }

  /** Returns the schema of a member that the schema does not name, from the schemas of the patterns that match its name. */
  #schemaOfMatching(ofPatterns: readonly Schema[]): Schema {
    const [only] = ofPatterns;
    if (only === undefined) return this.#additional;
    return ofPatterns.length === 1 ? only : { allOf: ofPatterns };
  }

  /** Returns the languages of which the intersection has the names that `propertyNames` allows, other than `names`. */
  #allowedExcept(names: readonly string[]): readonly Term[] {
    const { terms } = this.#compiler.languages;
    const allowed = this.#allowedNames === null ? [] : [this.#allowedNames];
    return names.length === 0 ? allowed : [...allowed, terms.not(terms.or(names.map((name) => terms.text(name))))];
  }

  /**
   * Returns keys with any values, and records the relaxation: for a closed object the keys that its patterns may match, otherwise all keys.
   */
  #anyKey(names: readonly string[]): readonly MemberKeys[] {
    const keyword = this.#patterns.length > 0 ? "patternProperties" : "propertyNames";
    this.#compiler.relax(keyword, this.#path, "its names have no automaton, or one of too many states");
    return [{ expression: this.#matchedKeys(names) ?? otherKeys(names, this.#compiler, this.#path), schema: true }];
  }

  /** Returns the keys of a closed object that its patterns may match; null for an open object, or if the automaton would be too large. */
  #matchedKeys(names: readonly string[]): Expression | null {
    if (this.#additional !== false || names.length > MAX_EXCLUDED) return null;
    const { languages, spell } = this.#compiler;
    const { terms } = languages;
    const matched = terms.or(this.#patterns.map(({ term }) => term));
    const expression = languages.expression(terms.and([...this.#allowedExcept(names), matched]), spell);
    return expression === null ? null : sequence(text('"'), expression, text('"'));
  }
}
