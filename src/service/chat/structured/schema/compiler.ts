/** From a JSON schema to an expression of the JSON texts that are valid for it. */
import { choice, choiceOf, NOTHING, repeat, text, type Expression, type GrammarBuilder } from "../../../../engine/grammar/expression.ts";
import { ArgumentError } from "../../../../errors.ts";
import { ESCAPED_CHARACTER, USUAL_WHITESPACE, jsonParts, literal, spelled, type JsonParts } from "../json-text.ts";
import { arrayOf } from "./arrays.ts";
import { areAllDisjoint } from "./disjoint.ts";
import {
  checkKeywords,
  assertionsOf,
  invalid,
  isSameJson,
  isSchemaObject,
  KEYWORDS_OF,
  refuse,
  toNames,
  toSchemas,
  type Schema,
  type SchemaObject,
} from "./keywords.ts";
import { mergeSchemas } from "./merge.ts";
import { numberOf } from "./numbers.ts";
import { objectOf } from "./objects.ts";
import { resolveReference } from "./references.ts";
import { stringOf } from "./strings.ts";

/** How JSON texts are written besides what a schema says. */
export interface JsonTextOptions {
  /** What may stand between the parts of a text. @default a space, or a line break with indentation, or nothing */
  readonly whitespace?: Expression | undefined;
  /** Whether objects have no members but those their schema names, where it does not say. @default false */
  readonly closesObjects?: boolean | undefined;
}

/** Parts of a schema; with a reference to it a part counts once. */
const MAX_SCHEMAS = 20_000;

const TYPES = ["null", "boolean", "object", "array", "number", "string"] as const;
const NAMES: readonly unknown[] = [...TYPES, "integer"];

/** Several schemas of one grammar, each a document of its own. */
export class SchemaCompiler {
  readonly builder: GrammarBuilder;
  readonly parts: JsonParts;
  readonly closesObjects: boolean;
  /** Any number of characters of a key, each in one spelling, and the closing quote. */
  readonly restOfKey: Expression;
  /** One character of a key that must be escaped. */
  readonly escapedCharacter: Expression;
  /** By the schema's place in memory, which is its place in its document. */
  readonly #rules = new Map<SchemaObject, Expression>();
  #document: Schema = true;
  #size = 0;

  constructor(builder: GrammarBuilder, options: JsonTextOptions = {}) {
    this.builder = builder;
    this.parts = jsonParts(builder, options.whitespace ?? USUAL_WHITESPACE);
    this.closesObjects = options.closesObjects ?? false;
    const characters = builder.rule(() => repeat(spelled([[0, 0x10ffff]])));
    this.escapedCharacter = builder.rule(() => ESCAPED_CHARACTER);
    this.restOfKey = builder.rule(() => ({ kind: "sequence", parts: [characters, text('"')] }));
  }

  /** The JSON texts that are valid for a whole schema. */
  document(schema: Schema): Expression {
    const before = this.#document;
    this.#document = schema;
    try {
      return this.rule(() => this.compile(schema, "#"));
    } finally {
      this.#document = before;
    }
  }

  /** An expression under a name of its own, so that it is written out once however often it is used. */
  rule(define: () => Expression): Expression {
    return this.builder.rule(define);
  }

  /**
   * The JSON texts that are valid for a part of the present schema.
   *
   * @param path - Where the part is; for messages.
   * @throws UnsupportedError `E_UNSUPPORTED` naming a keyword that cannot be enforced exactly.
   * @throws ArgumentError `E_ARGUMENT` for a schema that is none.
   */
  compile(schema: Schema, path: string): Expression {
    // What is merged from several schemas is made of new ones each time: only here can a schema that contains itself be known.
    const isMerged = typeof schema === "object" && ("$ref" in schema || "allOf" in schema);
    return isMerged ? this.#remembered(schema, path) : this.#expression(schema, path);
  }

  #expression(schema: Schema, path: string): Expression {
    if (schema === false) return NOTHING;
    if (schema === true) return this.parts.value;
    if (++this.#size > MAX_SCHEMAS) throw new ArgumentError(`Expected a schema of at most ${MAX_SCHEMAS} parts, references followed`);
    checkKeywords(schema, path);
    const asserted = assertionsOf(schema);
    const { $ref, allOf, ...rest } = asserted;
    if ($ref !== undefined && Object.keys(asserted).length === 1) {
      const { schema: meant, path: target } = this.#resolve($ref, path);
      return this.#remembered(meant, target);
    }
    if ($ref !== undefined || allOf !== undefined) {
      const parts = [rest, ...($ref === undefined ? [] : [{ $ref }]), ...toSchemas(allOf, "allOf", path)];
      return this.compile(mergeSchemas(parts, this.#resolve, path), path);
    }
    for (const keyword of ["anyOf", "oneOf"] as const) if (keyword in asserted) return this.#either(keyword, asserted, path);
    if ("enum" in asserted || "const" in asserted) return this.#values(asserted, path);
    return choice(...this.#typesOf(asserted, path).map((type) => this.#type(type, asserted, path)));
  }

  readonly #resolve = (reference: unknown, path: string) => resolveReference(this.#document, reference, path);

  /** The rule of a schema that may contain itself. */
  #remembered(schema: Schema, path: string): Expression {
    if (typeof schema === "boolean") return this.#expression(schema, path);
    const known = this.#rules.get(schema);
    if (known !== undefined) return known;
    return this.builder.rule((self) => {
      this.#rules.set(schema, self);
      return this.#expression(schema, path);
    });
  }

  #either(keyword: "anyOf" | "oneOf", { [keyword]: given, ...rest }: SchemaObject, path: string): Expression {
    const options = toSchemas(given, keyword, path);
    const merged = Object.keys(rest).length === 0 ? options : options.map((option) => mergeSchemas([rest, option], this.#resolve, path));
    if (keyword === "oneOf") {
      const followed = merged.map((option) => mergeSchemas([option, { allOf: [true] }], this.#resolve, path));
      const isPlain = areAllDisjoint(followed);
      if (isPlain !== true)
        throw refuse(
          "oneOf",
          path,
          isPlain === null
            ? "it has too many parts to compare each with each; use `anyOf`"
            : "that no value fits two of them is not plain from their types, constants or required members; use `anyOf`",
        );
    }
    return choiceOf(merged.map((option, at) => this.compile(option, `${path}/${keyword}/${at}`)));
  }

  #values(schema: SchemaObject, path: string): Expression {
    const beside = Object.keys(schema).find((keyword) => !["enum", "const", "type"].includes(keyword));
    if (beside !== undefined) throw refuse(beside, path, "`enum` or `const` stand beside it, which say everything");
    const { enum: listed, const: only } = schema;
    if (listed !== undefined && !Array.isArray(listed)) throw invalid("enum", path, "an array", listed);
    const wanted = (listed ?? [only]) as readonly unknown[];
    const values = "const" in schema ? wanted.filter((value) => isSameJson(value, only)) : wanted;
    const types = schema["type"] === undefined ? null : this.#typesOf(schema, path);
    return choiceOf(
      values
        .filter((value) => types === null || types.some((type) => isOfType(value, type)))
        .map((value) => literal(value, this.parts.whitespace)),
    );
  }

  #typesOf({ type }: SchemaObject, path: string): readonly string[] {
    if (type === undefined) return TYPES;
    const types = typeof type === "string" ? [type] : toNames(type, "type", path);
    const unknown = types.find((each) => !NAMES.includes(each));
    if (unknown !== undefined) throw invalid("type", path, `among ${NAMES.join(", ")}`, unknown);
    return types.filter((each) => each !== "integer" || !types.includes("number"));
  }

  #type(type: string, schema: SchemaObject, path: string): Expression {
    const kind = type === "integer" ? "number" : type;
    const isPlain = !(KEYWORDS_OF[kind as keyof typeof KEYWORDS_OF] ?? []).some((keyword) => keyword in schema);
    switch (type) {
      case "null":
        return text("null");
      case "boolean":
        return choice(text("true"), text("false"));
      case "object":
        return isPlain && !this.closesObjects ? this.parts.object : objectOf(schema, this, path);
      case "array":
        return isPlain ? this.parts.array : arrayOf(schema, this, path);
      case "string":
        return stringOf(schema, this.parts, path);
      default:
        return numberOf(schema, type === "integer", path);
    }
  }
}

function isOfType(value: unknown, type: string): boolean {
  if (type === "null") return value === null;
  if (type === "array") return Array.isArray(value);
  if (type === "integer") return Number.isInteger(value);
  if (type === "object") return isSchemaObject(value);
  return typeof value === type;
}
