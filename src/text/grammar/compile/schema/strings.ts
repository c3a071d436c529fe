/** Grammar of the strings that a schema describes. */
import { repeat, sequence, text, type Expression } from "../../expression.ts";
import { regexLanguage } from "../regex.ts";
import type { Term } from "../regular/term.ts";
import type { SchemaCompiler } from "./compiler.ts";
import { FORMATS, LOOSE_FORMATS } from "./formats.ts";
import { asList, toCount, type SchemaObject } from "./keywords.ts";
import { notsOf } from "./merge.ts";

/** Keyword of a schema for strings. */
interface Restriction {
  readonly keyword: string;
  /** Language of the strings that the keyword allows. */
  readonly term: Term;
}

/** Maximum `minLength` or `maxLength` that an automaton counts in combination with other keywords. */
const MAX_COUNTED = 300;

/**
 * Returns the language of the texts that contain a match of a pattern; a superset, which is recorded with `relax`, if the pattern is not
 * regular.
 */
function patternTerm(pattern: string, compiler: SchemaCompiler, path: string): Term {
  const { term, loose } = regexLanguage(pattern, compiler.languages.terms, { of: "part", name: `The pattern of the schema at ${path}` });
  if (loose !== null) compiler.relax("pattern", path, `it has ${loose.what} (\`${loose.source}\`)`);
  return term;
}

/** Returns the restriction by a format; none for an unknown format, which is only an annotation. */
function formatRestriction(format: string, compiler: SchemaCompiler, path: string): Restriction[] {
  const why = LOOSE_FORMATS.get(format);
  if (why !== undefined) compiler.relax("format", path, why);
  const source = FORMATS.get(format);
  if (source === undefined) return [];
  const { term } = regexLanguage(source, compiler.languages.terms, { of: "whole", name: `The format of the schema at ${path}` });
  return [{ keyword: "format", term }];
}

/** Returns the restrictions by `not`, one for each schema that it excludes. */
function notRestrictions(schema: SchemaObject, compiler: SchemaCompiler, path: string): Restriction[] {
  const { terms } = compiler.languages;
  return notsOf(schema["not"]).flatMap((excluded): Restriction[] => {
    const { enum: values, pattern } = excluded;
    if (Array.isArray(values)) {
      const strings = values.filter((value) => typeof value === "string");
      return [{ keyword: "not", term: terms.not(terms.or(strings.map((value) => terms.text(value)))) }];
    }
    const { term, loose } = regexLanguage(String(pattern), terms, { of: "part", name: `The pattern of the schema at ${path}/not` });
    if (loose === null) return [{ keyword: "not", term: terms.not(term) }];
    compiler.relax("not", path, `its pattern has ${loose.what}`);
    return [];
  });
}

/** Returns the restriction by the bounds of the length; none without bounds. */
function lengthRestriction(schema: SchemaObject, compiler: SchemaCompiler, path: string): Restriction[] {
  const { terms } = compiler.languages;
  const [min, max] = [toCount(schema, "minLength", path), toCount(schema, "maxLength", path)];
  if (min === undefined && max === undefined) return [];
  return [{ keyword: max === undefined ? "minLength" : "maxLength", term: terms.repeat(terms.character, min ?? 0, max ?? Infinity) }];
}

/** Returns the restrictions by all keywords of a string: the length last, because it takes the most states with others. */
function restrictionsOf(schema: SchemaObject, compiler: SchemaCompiler, path: string): Restriction[] {
  return [
    ...asList(schema["pattern"]).map((pattern) => ({ keyword: "pattern", term: patternTerm(pattern as string, compiler, path) })),
    ...asList(schema["format"]).flatMap((format) => formatRestriction(format as string, compiler, path)),
    ...notRestrictions(schema, compiler, path),
    ...lengthRestriction(schema, compiler, path),
  ];
}

/** Returns the language of all keywords of a string; null for a schema without such keywords. */
export function stringTerm(schema: SchemaObject, compiler: SchemaCompiler, path: string): Term | null {
  const restrictions = restrictionsOf(schema, compiler, path);
  return restrictions.length === 0 ? null : compiler.languages.terms.and(restrictions.map(({ term }) => term));
}

/**
 * Returns the expression of the strings that a schema describes. Strings with a pattern, a format or excluded values have the spelling of
 * `JSON.stringify`; other strings may have any escapes.
 *
 * If the automaton of all keywords is too large, the keywords that enlarge it too much are left to the validation.
 */
export function stringOf(schema: SchemaObject, compiler: SchemaCompiler, path: string): Expression {
  const { languages, spell } = compiler;
  const quoted = (body: Expression): Expression => sequence(text('"'), body, text('"'));
  const restrictions = restrictionsOf(schema, compiler, path);
  if (restrictions.length === 0) return compiler.parts.string;
  if (restrictions.every(({ keyword }) => keyword.endsWith("Length"))) {
    const [min, max] = [toCount(schema, "minLength", path), toCount(schema, "maxLength", path)];
    return quoted(repeat(compiler.character, min ?? 0, max ?? null));
  }
  const ofAllKeywords = languages.terms.and(restrictions.map(({ term }) => term));
  const largestLength = Math.max(toCount(schema, "minLength", path) ?? 0, toCount(schema, "maxLength", path) ?? 0);
  const canCount = ofAllKeywords.isPlain || largestLength <= MAX_COUNTED;
  const exact = canCount ? languages.expression(ofAllKeywords, spell) : null;
  if (exact !== null) return quoted(exact);
  // Adds the keywords one by one, and omits each that makes the automaton too large.
  let enforced = languages.terms.anything;
  let expression: Expression = repeat(spell([[0, 0x10ffff]]));
  for (const { keyword, term } of restrictions) {
    const narrowed = languages.terms.and([enforced, term]);
    const isTooLong = keyword.endsWith("Length") && largestLength > MAX_COUNTED && !narrowed.isPlain;
    const narrowedExpression = isTooLong ? null : languages.expression(narrowed, spell);
    if (narrowedExpression === null) compiler.relax(keyword, path, "with the other keywords of the string it takes too many states");
    else [enforced, expression] = [narrowed, narrowedExpression];
  }
  return quoted(expression);
}
