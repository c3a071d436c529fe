/**
 * Compiler from a JSON schema to a grammar expression of the JSON texts that are valid for the schema. The files next to this one compile
 * single types (`objects.ts`, `arrays.ts`, `strings.ts`, `numbers.ts`) and call it back for the schemas inside.
 */
import { MAX_GRAMMAR_STATES } from "../../check.ts";
import { choice, choiceOf, MATCHES_NOTHING, repeat, text, type Expression, type GrammarBuilder } from "../../expression.ts";
import { ArgumentError } from "../../../../base/errors.ts";
import { ANY_CHARACTER, ESCAPED_CHARACTER, USUAL_WHITESPACE, jsonParts, literal, spelled, speller, type JsonParts } from "../json-text.ts";
import { regexLanguage } from "../regex.ts";
import { Languages, type Spell } from "../regular/language.ts";
import { arrayOf } from "./arrays.ts";
import { areAllDisjoint, exclusiveOptions, flattened, withTags } from "./disjoint.ts";
import { fits, isOfType } from "./finite.ts";
import { withoutIdentifiers } from "./identifiers.ts";
import {
  asList,
  assertionsOf,
  invalid,
  isSameJson,
  KEYWORDS_OF,
  MAX_SCHEMAS,
  unenforceable,
  toNames,
  toSchemas,
  type Schema,
  type SchemaObject,
} from "./keywords.ts";
import { mergeSchemas, notsOf, type Merging } from "./merge.ts";
import { numberOf } from "./numbers.ts";
import { objectOf } from "./objects.ts";
import { asPrepared, preparer } from "./prepare.ts";
import { resolveReference } from "./references.ts";
import { stringOf } from "./strings.ts";
import { getOrInsert } from "../../../../base/util/values.ts";

/** Options for JSON syntax that a schema does not determine. */
export interface JsonTextOptions {
  /** White space between the parts of a text. @default a space, or a line break with indentation, or nothing */
  readonly whitespace?: Expression | undefined;
  /** Whether objects may have only the members that their schema names, unless it sets `additionalProperties`. @default false */
  readonly closesObjects?: boolean | undefined;
}

/** Keywords that are resolved by merging schemas. */
const MERGED = ["$ref", "allOf", "unevaluatedProperties", "unevaluatedItems"];

/** Types of JSON values. */
const TYPES = ["null", "boolean", "object", "array", "number", "string"] as const;
/** Valid values of the keyword `type`. */
const TYPE_NAMES: readonly unknown[] = [...TYPES, "integer"];

/** Keyword that a grammar does not fully enforce, so that the finished text must be validated. */
export interface Relaxation {
  readonly keyword: string;
  /** Position of the keyword's schema. */
  readonly path: string;
}

/** Result of {@link SchemaCompiler.document}. */
interface CompiledSchema {
  /** JSON texts that are valid for the schema; with relaxations, a superset. */
  readonly expression: Expression;
  readonly relaxations: readonly Relaxation[];
  /** Schema with which texts are validated, see {@link SchemaCompiler.document}. */
  readonly schema: Schema;
}

/** Document that is being compiled. */
interface OpenDocument {
  readonly schema: Schema;
  /** Whether every keyword must be fully enforced. */
  readonly isStrict: boolean;
  /** Grows during the compilation. */
  readonly relaxations: Relaxation[];
}

/** Compiler of one or more schemas into one grammar, each schema a document of its own. */
export class SchemaCompiler {
  readonly builder: GrammarBuilder;
  /** Rules of JSON without a schema. */
  readonly parts: JsonParts;
  /** See {@link JsonTextOptions.closesObjects}. */
  readonly closesObjects: boolean;
  readonly languages: Languages;
  /** Returns the expression of one character of a string, with one spelling per character. */
  readonly spell: Spell;
  /** Any character of a string, in any spelling. */
  readonly character: Expression;
  /** Any number of characters of a key, with one spelling per character, and the closing quote. */
  readonly restOfKey: Expression;
  /** Any character that must be escaped, in the spelling of keys. */
  readonly escapedCharacter: Expression;
  /** Characters of keys other than some code points, by these code points: most positions of names have one code point of few. */
  readonly otherCharacters = new Map<string, Expression>();
  /** Rules of schemas that may contain themselves, by the identity of the schema's object in its document. */
  readonly #rules = new Map<SchemaObject, Expression>();
  /** Results of {@link follow}. */
  readonly #followed = new WeakMap<SchemaObject, Schema>();
  readonly #merging: Merging;
  #document: OpenDocument = { schema: true, isStrict: false, relaxations: [] };
  /** Number of compiled schemas of all documents. */
  #compiledSchemas = 0;
  #ruleCount = 0;

  constructor(builder: GrammarBuilder, options: JsonTextOptions = {}) {
    this.builder = builder;
    this.parts = jsonParts(builder, options.whitespace ?? USUAL_WHITESPACE);
    this.closesObjects = options.closesObjects ?? false;
    this.languages = new Languages(builder);
    this.spell = speller(builder);
    this.character = builder.rule(() => ANY_CHARACTER);
    const characters = builder.rule(() => repeat(spelled([[0, 0x10ffff]])));
    this.escapedCharacter = builder.rule(() => ESCAPED_CHARACTER);
    this.restOfKey = builder.rule(() => ({ kind: "sequence", parts: [characters, text('"')] }));
    const resolve: Merging["resolve"] = (reference, path) => resolveReference(this.#document.schema, reference, path);
    const relax: Merging["relax"] = (keyword, path, why) => this.relax(keyword, path, why);
    this.#merging = {
      resolve,
      relax,
      prepare: preparer(resolve, relax),
      matches: (pattern, name) => this.finds(pattern, name),
      pairs: new WeakMap(),
      spent: { pairs: 0, entries: 0 },
    };
  }

  /**
   * Compiles a whole schema.
   *
   * @param given - The schema; references are resolved within it.
   * @param options - With `isStrict`, every keyword must be fully enforced, because the text is not validated.
   * @returns Expression of the JSON texts that are valid for the schema, or of a superset; the keywords that must be validated; and the
   *   schema to validate them with, in which all references are JSON pointers.
   * @throws UnsupportedError `E_UNSUPPORTED` for an unsupported keyword; with `isStrict`, for one that is not fully enforced.
   * @throws ArgumentError `E_ARGUMENT` for a malformed schema.
   */
  document(given: Schema, { isStrict = false } = {}): CompiledSchema {
    const schema = withoutIdentifiers(given);
    const relaxations: Relaxation[] = [];
    const outerDocument = this.#document;
    this.#document = { schema, isStrict, relaxations };
    try {
      const expression = this.rule(() => this.compile(schema, "#"));
      return { expression, relaxations, schema };
    } finally {
      this.#document = outerDocument;
    }
  }

  /**
   * Adds an expression as a rule, which all its uses share, and returns the call of the rule.
   *
   * @throws ArgumentError `E_ARGUMENT` for more rules than a grammar has states.
   */
  rule(define: () => Expression): Expression {
    this.#ruleCount++;
    if (this.#ruleCount > MAX_GRAMMAR_STATES)
      throw new ArgumentError(
        `Expected schemas with a grammar of at most ${MAX_GRAMMAR_STATES} rules, got more; shorten them, or lower \`minProperties\` and \`maxProperties\``,
      );
    return this.builder.rule(define);
  }

  /**
   * Records that the grammar does not fully enforce a keyword.
   *
   * @throws UnsupportedError `E_UNSUPPORTED` in a document that is not validated.
   */
  relax(keyword: string, path: string, why: string): void {
    if (this.#document.isStrict) throw unenforceable(keyword, path, why);
    this.#document.relaxations.push({ keyword, path });
  }

  /** Whether a pattern is found in a text; null if unknown. */
  finds(pattern: string, given: string): boolean | null {
    const { term, loose } = regexLanguage(pattern, this.languages.terms, { of: "part", name: "A pattern of the schema" });
    const isFound = this.languages.matches(term, given);
    return isFound && loose !== null ? null : isFound;
  }

  /** Returns a schema with its references and `allOf` merged into it. */
  follow(schema: Schema, path: string): Schema {
    if (typeof schema === "boolean") return schema;
    return getOrInsert(this.#followed, schema, () => {
      const prepared = assertionsOf(this.#merging.prepare(schema, path));
      const isPlain = !MERGED.some((keyword) => keyword in prepared);
      return isPlain ? asPrepared(prepared) : mergeSchemas([schema], this.#merging, path);
    });
  }

  /**
   * Returns the expression of the JSON texts that are valid for a part of the current document.
   *
   * @param schema - The part.
   * @param path - Position of the part, for messages.
   */
  compile(schema: Schema, path: string): Expression {
    // Merged schemas are new objects each time: recursive schemas are recognized only by references and `allOf`.
    const isMerged = typeof schema === "object" && ("$ref" in schema || "allOf" in schema);
    return isMerged ? this.#ruleOf(schema, path) : this.#expression(schema, path);
  }

  /** Returns the expression of a schema. It does not use a rule of this schema, so that it can define the rule. */
  #expression(schema: Schema, path: string): Expression {
    if (schema === false) return MATCHES_NOTHING;
    if (schema === true) return this.parts.value;
    this.#compiledSchemas++;
    if (this.#compiledSchemas > MAX_SCHEMAS)
      throw new ArgumentError(`Expected a schema of at most ${MAX_SCHEMAS} parts, references followed`);
    const asserted = assertionsOf(this.#merging.prepare(schema, path));
    const { $ref } = asserted;
    if ($ref !== undefined && Object.keys(asserted).length === 1) {
      const { schema: target, path: targetPath } = this.#merging.resolve($ref, path);
      return this.#ruleOf(target, targetPath);
    }
    if (MERGED.some((keyword) => keyword in asserted)) return this.#expression(this.follow(schema, path), path);
    for (const keyword of ["anyOf", "oneOf"] as const) if (keyword in asserted) return this.#either(keyword, asserted, path);
    if ("enum" in asserted || "const" in asserted) return this.#values(asserted, path);
    return choice(...this.#typesOf(asserted, path).map((type) => this.#type(type, asserted, path)));
  }

  /** Returns the rule of a schema that may contain itself, created at its first use. */
  #ruleOf(schema: Schema, path: string): Expression {
    if (typeof schema === "boolean") return this.#expression(schema, path);
    const existing = this.#rules.get(schema);
    if (existing !== undefined) return existing;
    return this.builder.rule((self) => {
      // Before the expression, which may use the rule.
      this.#rules.set(schema, self);
      return this.#expression(schema, path);
    });
  }

  /**
   * Returns the expression of a schema with `anyOf` or `oneOf`, each alternative merged with the schema's other keywords. A grammar accepts
   * the texts of every alternative, so for `oneOf` the alternatives must be disjoint, or be made so.
   */
  #either(keyword: "anyOf" | "oneOf", { [keyword]: given, ...rest }: SchemaObject, path: string): Expression {
    const options = toSchemas(given, keyword, path);
    const others = asPrepared(rest);
    const hasOthers = Object.keys(rest).length > 0;
    const merged = hasOthers ? options.map((option) => mergeSchemas([others, option], this.#merging, path)) : options;
    const alternatives = keyword === "oneOf" ? this.#madeDisjoint(options, merged, path) : merged;
    return choiceOf(alternatives.map((option, at) => this.compile(option, `${path}/${keyword}/${at}`)));
  }

  /**
   * Returns the options of a `oneOf` without values in common; the merged options, and a relaxation, if that is not possible.
   *
   * @param merged - The options, each merged with the other keywords of the schema.
   */
  #madeDisjoint(options: readonly Schema[], merged: readonly Schema[], path: string): readonly Schema[] {
    const followed = merged.map((option) => this.follow(option, path));
    const flat = flattened(followed, this, path);
    if (areAllDisjoint(flat, this, path)) return merged;
    const disjoint = withTags(flat, this, path) ?? exclusiveOptions(options, followed, this.#merging, this, path);
    if (disjoint !== null) return disjoint;
    this.relax("oneOf", path, "two of its schemas may have a value in common");
    return merged;
  }

  /** Returns the expression of a schema with `enum` or `const`: the listed values that match its other keywords. */
  #values(schema: SchemaObject, path: string): Expression {
    const { enum: listed, const: only, type, ...rest } = schema;
    if (listed !== undefined && !Array.isArray(listed)) throw invalid("enum", path, "an array", listed);
    // Only validates the keyword.
    if (type !== undefined) this.#typesOf(schema, path);
    const others = asPrepared(rest);
    const hasOthers = Object.keys(rest).length > 0;
    const values = ((listed ?? [only]) as readonly unknown[]).filter((value) => {
      if ("const" in schema && !isSameJson(value, only)) return false;
      if (type !== undefined && !asList(type).some((name) => isOfType(value, name))) return false;
      const doesFit = !hasOthers || fits(value, others, this, path);
      if (doesFit === null) this.relax("enum", path, "its values are held to other keywords at the end");
      return doesFit !== false;
    });
    return choiceOf(values.map((value) => literal(value, this.parts.whitespace)));
  }

  /** Returns the types that a schema allows, `integer` only without `number`. */
  #typesOf({ type }: SchemaObject, path: string): readonly string[] {
    if (type === undefined) return TYPES;
    const types = typeof type === "string" ? [type] : toNames(type, "type", path);
    const unknown = types.find((each) => !TYPE_NAMES.includes(each));
    if (unknown !== undefined) throw invalid("type", path, `among ${TYPE_NAMES.join(", ")}`, unknown);
    return types.filter((each) => each !== "integer" || !types.includes("number"));
  }

  /** Returns the expression of the values of one type that a schema allows. */
  #type(type: string, schema: SchemaObject, path: string): Expression {
    const hasAny = (keywords: readonly string[]): boolean => keywords.some((keyword) => keyword in schema);
    switch (type) {
      case "null":
      case "boolean":
        return this.#values({ ...schema, type, enum: type === "null" ? [null] : [true, false] }, path);
      case "object":
        if ("not" in schema) this.#relaxExcluded(schema, isObjectValue, path);
        return hasAny(KEYWORDS_OF.object) || this.closesObjects ? objectOf(schema, this, path) : this.parts.object;
      case "array":
        if ("not" in schema) this.#relaxExcluded(schema, Array.isArray, path);
        return hasAny(KEYWORDS_OF.array) ? arrayOf(schema, this, path) : this.parts.array;
      case "string":
        return stringOf(schema, this, path);
      default:
        return numberOf(schema, type === "integer", this, path);
    }
  }

  /** Relaxes a `not` that excludes single objects or arrays, which the validation compares with the finished value. */
  #relaxExcluded({ not }: SchemaObject, isOfKind: (value: unknown) => boolean, path: string): void {
    if (notsOf(not).some(({ enum: values }) => asList(values).some(isOfKind)))
      this.relax("not", path, "whole values are compared at the end");
  }
}

/** Whether a value is an object, not an array or null. */
function isObjectValue(value: unknown): boolean {
  return isOfType(value, "object");
}
