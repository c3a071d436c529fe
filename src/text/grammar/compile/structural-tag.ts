/**
 * Structural tags: descriptions of texts that mix free text with tagged parts, such as `<tool_call>…</tool_call>`. A schema, a regular
 * expression or a grammar describes the content of a tag.
 */
import { EMPTY, choice, choiceOf, repeat, sequence, sequenceOf, text, type Expression } from "../expression.ts";
import { ArgumentError, UnsupportedError } from "../../../base/errors.ts";
import { shown } from "../../../base/util/shown.ts";
import { ebnfExpression } from "./ebnf.ts";
import { textWithout } from "./free-text.ts";
import { regexExpression } from "./regex.ts";
import type { SchemaCompiler } from "./schema/compiler.ts";
import { isSchemaObject, toSchema, type SchemaObject } from "./schema/keywords.ts";
import { messageOf } from "../../../base/util/values.ts";

/** Returns the error for a value in a tag that is not as expected. */
function invalid(path: string, expected: string, got: unknown): ArgumentError {
  return new ArgumentError(`Expected \`${path}\` of the structural tag to be ${expected}, got ${shown(got)}`);
}

/** Translates structural tags to expressions. `path` names a value in error messages. */
class TagReader {
  readonly #compiler: SchemaCompiler;

  constructor(compiler: SchemaCompiler) {
    this.#compiler = compiler;
  }

  #object(value: unknown, path: string): SchemaObject {
    if (!isSchemaObject(value)) throw invalid(path, "an object", value);
    return value;
  }

  /** Returns the string `name` of an object. */
  #string(owner: SchemaObject, name: string, path: string): string {
    const value = owner[name];
    if (typeof value !== "string") throw invalid(`${path}.${name}`, "a string", value);
    return value;
  }

  /** Returns what `read` returns for each item of the list `name` of an object. */
  #list<T>(owner: SchemaObject, name: string, path: string, read: (item: unknown, path: string) => T): T[] {
    const value = owner[name];
    if (!Array.isArray(value) || value.length === 0) throw invalid(`${path}.${name}`, "an array, not empty", value);
    return value.map((item, at) => read(item, `${path}.${name}.${at}`));
  }

  /** Returns the boolean `name` of an object; false if it is absent. */
  #flag(owner: SchemaObject, name: string, path: string): boolean {
    const value = owner[name];
    if (value !== undefined && typeof value !== "boolean") throw invalid(`${path}.${name}`, "a boolean", value);
    return value === true;
  }

  /** Returns the expression of free text that contains none of `strings`. */
  #without(strings: readonly string[]): Expression {
    return textWithout(strings, this.#compiler.builder);
  }

  /** Returns the beginning of a tag, and the expression of the whole tag. */
  #tag(given: unknown, path: string): { readonly begin: string; readonly expression: Expression } {
    const tag = this.#object(given, path);
    const [begin, end] = [this.#string(tag, "begin", path), this.#string(tag, "end", path)];
    const content = this.#object(tag["content"], `${path}.content`);
    // Free text stops at the first occurrence of its end.
    const isFreeText = content["type"] === "any_text" && end !== "";
    const contentExpression = isFreeText ? this.#without([end]) : this.format(content, `${path}.content`);
    return { begin, expression: sequence(text(begin), contentExpression, text(end)) };
  }

  /** Returns the expression of tags with free text between them that contains no triggers. A trigger must begin one of the tags. */
  #triggered(format: SchemaObject, path: string): Expression {
    const triggers = this.#list(format, "triggers", path, (item, itemPath) => {
      if (typeof item !== "string" || item === "") throw invalid(`${itemPath}.trigger`, "a string, not empty", item);
      return item;
    });
    const tags = this.#list(format, "tags", path, (item, itemPath) => this.#tag(item, itemPath));
    for (const { begin } of tags)
      if (!triggers.some((trigger) => begin.startsWith(trigger))) throw invalid(`${path}.tags`, "tags that begin with a trigger", begin);
    const tag = choiceOf(tags.map(({ expression }) => expression));
    const [isAtLeastOne, isOnlyOne] = [this.#flag(format, "at_least_one", path), this.#flag(format, "stop_after_first", path)];
    if (isAtLeastOne && isOnlyOne) return tag;
    const freeText = this.#without(triggers);
    if (isOnlyOne) return sequence(freeText, choice(EMPTY, tag));
    const anyTags = sequence(freeText, repeat(sequence(tag, freeText)));
    return isAtLeastOne ? sequence(tag, anyTags) : anyTags;
  }

  /** Returns the expression of tags with a separator between them and no free text. */
  #separated(format: SchemaObject, path: string): Expression {
    const tag = choiceOf(this.#list(format, "tags", path, (item, at) => this.#tag(item, at).expression));
    const separator = text(this.#string(format, "separator", path));
    const tags = this.#flag(format, "stop_after_first", path) ? tag : sequence(tag, repeat(sequence(separator, tag)));
    return this.#flag(format, "at_least_one", path) ? tags : choice(EMPTY, tags);
  }

  /** Returns the expression of the format of a tag or of a part of it. */
  format(given: unknown, path: string): Expression {
    const format = this.#object(given, path);
    switch (format["type"]) {
      case "const_string":
        return text(this.#string(format, "value", path));
      case "any_text":
        return this.#without([]);
      case "json_schema":
        return this.#compiler.document(toSchema(format["json_schema"], "json_schema", path), { isStrict: true }).expression;
      case "regex":
        return regexExpression(this.#string(format, "pattern", path), this.#compiler.builder, `\`${path}.pattern\``);
      case "grammar":
        return ebnfExpression(this.#string(format, "grammar", path), this.#compiler.builder);
      case "sequence":
        return sequenceOf(this.#list(format, "elements", path, (item, at) => this.format(item, at)));
      case "or":
        return choiceOf(this.#list(format, "elements", path, (item, at) => this.format(item, at)));
      case "tag":
        return this.#tag(format, path).expression;
      case "triggered_tags":
        return this.#triggered(format, path);
      case "tags_with_separator":
        return this.#separated(format, path);
      case "qwen_xml_parameter":
        throw new UnsupportedError(`The structural tag's \`${path}\` has the type qwen_xml_parameter, which is not supported`);
      default:
        throw invalid(
          `${path}.type`,
          "const_string, any_text, json_schema, regex, grammar, sequence, or, tag, triggered_tags or tags_with_separator",
          format["type"],
        );
    }
  }

  /** Returns the expression of a tag in the older form: `structures` with `begin`, `schema` and `end`, and `triggers`. */
  legacy(structures: readonly unknown[], triggers: unknown): Expression {
    const tags = structures.map((given, at) => {
      const { begin, schema, end } = this.#object(given, `structures.${at}`);
      return { begin, end, content: { type: "json_schema", json_schema: typeof schema === "string" ? parsedSchema(schema) : schema } };
    });
    return this.format({ type: "triggered_tags", tags, triggers }, "structural_tag");
  }
}

/** Parses a schema that is given as JSON text. */
function parsedSchema(source: string): unknown {
  try {
    return JSON.parse(source);
  } catch (cause) {
    throw new ArgumentError(`A schema of the structural tag is not JSON: ${messageOf(cause)}`, {
      cause,
    });
  }
}

/**
 * Returns the expression of the texts of a structural tag, `{"type": "structural_tag", "format": …}` or `{"structures": […], "triggers":
 * […]}`.
 *
 * @throws ArgumentError `E_ARGUMENT` for a malformed tag.
 * @throws UnsupportedError `E_UNSUPPORTED` naming the construct that cannot be enforced.
 */
export function structuralTagExpression(tag: unknown, compiler: SchemaCompiler): Expression {
  const reader = new TagReader(compiler);
  if (!isSchemaObject(tag)) throw invalid("structural_tag", "an object", tag);
  const { structures, triggers, format } = tag;
  if (Array.isArray(structures) && structures.length > 0) return reader.legacy(structures, triggers);
  if (format === undefined) throw invalid("structural_tag", "an object with a `format`, or with `structures` and `triggers`", tag);
  return reader.format(format, "format");
}
