/**
 * Compilation of the form that a request requires of its output, such as a JSON schema, into a grammar for the sampler: `compileOutput`, and
 * its cache `OutputGrammars`.
 */
import { checkGrammar } from "../../../text/grammar/check.ts";
import { complement, intersection } from "../../../text/grammar/code-points.ts";
import {
  GrammarBuilder,
  choiceOf,
  repeat,
  sequence,
  text,
  type CodePointRange,
  type Expression,
  type Grammar,
} from "../../../text/grammar/expression.ts";
import { ArgumentError } from "../../../base/errors.ts";
import { parseNestedJson } from "../../../base/util/json-size.ts";
import { Lru } from "../../../base/util/lru.ts";
import { shown } from "../../../base/util/shown.ts";
import type { RequestTool } from "../../../base/schema/chat.ts";
import { ebnfExpression } from "../../../text/grammar/compile/ebnf.ts";
import { textWithout } from "../../../text/grammar/compile/free-text.ts";
import { isLark, larkExpression } from "../../../text/grammar/compile/lark.ts";
import type { OutputCheck } from "./output-check.ts";
import type { OutputForm, OutputRequest } from "../request/output-request.ts";
import { regexExpression } from "../../../text/grammar/compile/regex.ts";
import { withClosedObjects } from "../../../text/grammar/compile/schema/closed.ts";
import { SchemaCompiler } from "../../../text/grammar/compile/schema/compiler.ts";
import { toSchema, type Schema } from "../../../text/grammar/compile/schema/keywords.ts";
import { structuralTagExpression } from "../../../text/grammar/compile/structural-tag.ts";

/** Returns a value that may be given as JSON text. @throws ArgumentError `E_ARGUMENT` for a text that is not JSON. */
function parseIfText(value: unknown, field: string): unknown {
  if (typeof value !== "string") return value;
  try {
    return parseNestedJson(value);
  } catch (cause) {
    if (!(cause instanceof SyntaxError)) throw cause;
    throw new ArgumentError(`\`${field}\` is not JSON: ${cause.message}`, { cause });
  }
}

/** Returns the schema of a tool's arguments: an object, empty for a tool without parameters. */
function argumentsSchema({ function: { name, parameters } }: RequestTool): Schema {
  const { type = "object", ...otherKeywords } = parameters ?? {};
  if (type !== "object")
    throw new ArgumentError(`Expected the \`parameters\` of the tool ${name} to be of type object, got ${shown(type)}`);
  return { type, ...otherKeywords };
}

/** White space that JSON allows: tab, line feed, carriage return and space. */
const SPACES: readonly CodePointRange[] = [
  [0x09, 0x0a],
  [0x0d, 0x0d],
  [0x20, 0x20],
];

/** Whether an expression describes only white space that JSON allows. */
function isBlank(expression: Expression): boolean {
  switch (expression.kind) {
    case "set":
      return intersection(expression.ranges, complement(SPACES)).length === 0;
    case "sequence":
      return expression.parts.every(isBlank);
    case "choice":
      return expression.options.every(isBlank);
    case "repeat":
      return isBlank(expression.body);
    default:
      return false;
  }
}

/** Compiles `whitespace_pattern`. @throws ArgumentError `E_ARGUMENT` for a pattern that matches other characters. */
function whitespaceOf(pattern: string, builder: GrammarBuilder): Expression {
  const name = "`structured_outputs.whitespace_pattern`";
  const expression = regexExpression(pattern, builder, name);
  if (!isBlank(expression))
    throw new ArgumentError(`Expected ${name} to describe only spaces, tabs and line breaks, which JSON allows, got ${shown(pattern)}`);
  return expression;
}

/** Expression of a form, and the schemas that its text must be validated against. */
interface Compiled {
  readonly expression: Expression;
  readonly check: OutputCheck | null;
}

/** Returns the JSON of the schema that a text is validated against. */
function checkedSchema(schema: Schema, { closesObjects }: SchemaCompiler): string {
  return JSON.stringify(closesObjects ? withClosedObjects(schema) : schema);
}

/** Compiles a schema. A schema of which the grammar enforces only a part (its relaxations) also gets a check. */
function compileSchema(document: Schema, compiler: SchemaCompiler): Compiled {
  const { expression, relaxations, schema } = compiler.document(document);
  return { expression, check: relaxations.length === 0 ? null : { kind: "json", schema: checkedSchema(schema, compiler) } };
}

/** Compiles an array of calls. */
function compileCalls({ tools, isOne }: Extract<OutputForm, { kind: "calls" }>, compiler: SchemaCompiler): Compiled {
  const { whitespace } = compiler.parts;
  const schemas: (readonly [name: string, schema: string])[] = [];
  const callsByTool = tools.map((tool) => {
    const { name } = tool.function;
    const { expression, relaxations, schema } = compiler.document(argumentsSchema(tool));
    if (relaxations.length > 0) schemas.push([name, checkedSchema(schema, compiler)]);
    const head = ["{", '"name"', ":", JSON.stringify(name), ",", '"parameters"', ":"].flatMap((part) => [text(part), whitespace]);
    return sequence(...head, expression, whitespace, text("}"), whitespace);
  });
  const call = choiceOf(callsByTool);
  const furtherCalls = repeat(sequence(text(","), whitespace, call), 0, isOne ? 0 : null);
  const check: OutputCheck | null = schemas.length === 0 ? null : { kind: "calls", schemas };
  return { expression: sequence(text("["), whitespace, call, furtherCalls, text("]")), check };
}

/** Compiles a form. Forms other than schemas and calls are enforced entirely, and need no check. */
function compileForm(form: OutputForm, compiler: SchemaCompiler): Compiled {
  const exact = (expression: Expression): Compiled => ({ expression, check: null });
  switch (form.kind) {
    case "json":
      return compileSchema(toSchema(parseIfText(form.schema, "structured_outputs.json"), "json", "#"), compiler);
    case "json_object":
      return exact(compiler.parts.object);
    case "regex":
      return exact(regexExpression(form.pattern, compiler.builder, "`structured_outputs.regex`"));
    case "choice":
      return exact(choiceOf(form.options.map(text)));
    case "grammar": {
      const { source } = form;
      return exact(isLark(source) ? larkExpression(source, compiler.builder) : ebnfExpression(source, compiler.builder));
    }
    case "structural_tag":
      return exact(structuralTagExpression(parseIfText(form.tag, "structured_outputs.structural_tag"), compiler));
    case "calls":
      return compileCalls(form, compiler);
    case "arguments":
      return compileSchema(argumentsSchema(form.tool), compiler);
  }
}

/** Options of {@link compileOutput}. */
export interface OutputGrammarOptions {
  /** End of the reasoning that the text begins with; null for a text without reasoning. */
  readonly reasoningEnd: string | null;
}

/** Compiled form of a request's output, for the sampler and the validation. Plain data. */
export interface CompiledOutput {
  readonly grammar: Grammar;
  /** Estimated number of states of the grammar. */
  readonly states: number;
  /** Schemas that the finished text must be validated against; null if the grammar enforces everything. */
  readonly check: OutputCheck | null;
}

/**
 * Compiles the form of a request's output. A pure function of its arguments.
 *
 * @param request - Form of the output and its JSON syntax.
 * @param options - End of the reasoning.
 * @throws ArgumentError `E_ARGUMENT` for a schema, expression, grammar or tag that is malformed, or that no text matches.
 * @throws UnsupportedError `E_UNSUPPORTED` naming a construct that can be neither enforced nor validated.
 */
export function compileOutput(
  { form, whitespacePattern, closesObjects }: OutputRequest,
  { reasoningEnd }: OutputGrammarOptions,
): CompiledOutput {
  const builder = new GrammarBuilder();
  const whitespace = whitespacePattern === null ? undefined : whitespaceOf(whitespacePattern, builder);
  const isCall = form.kind === "calls" || form.kind === "arguments";
  const compiler = new SchemaCompiler(builder, { whitespace, closesObjects: closesObjects || isCall });
  const { expression, check } = compileForm(form, compiler);
  const withReasoning = (end: string) => sequence(textWithout([end], builder), text(end), expression);
  const grammar = builder.build(reasoningEnd === null ? expression : withReasoning(reasoningEnd));
  return { grammar, states: checkGrammar(grammar).states, check };
}

/** Maximum number of cached outputs; the least recently used is dropped first. */
const MAX_CACHED = 64;
/** Maximum length of a cached form, in UTF-16 units; requests with a longer form are compiled each time. */
const MAX_KEY_LENGTH = 65_536;

/** Maximum number of states of all cached grammars: a few of the largest, or {@link MAX_CACHED} of usual size. */
const MAX_CACHED_STATES = 1_000_000;

/** Compiles an output with {@link compileOutput}, on this thread or another. */
type OutputCompiler = (
  request: OutputRequest,
  options: OutputGrammarOptions,
  signal: AbortSignal | undefined,
) => CompiledOutput | Promise<CompiledOutput>;

/** Cache of compiled outputs: the requests of a training run mostly have the same form. */
export class OutputGrammars {
  readonly #cache = new Lru<string, CompiledOutput>({ maxEntries: MAX_CACHED, maxWeight: MAX_CACHED_STATES });
  readonly #compile: OutputCompiler;

  /** @param compile - Compiler of a form. @default {@link compileOutput} on this thread */
  constructor(compile: OutputCompiler = compileOutput) {
    this.#compile = compile;
  }

  /** Returns the result of {@link compileOutput}, from the cache if possible. */
  async compile(request: OutputRequest, options: OutputGrammarOptions, signal?: AbortSignal): Promise<CompiledOutput> {
    const key = JSON.stringify([request, options]);
    const known = this.#cache.get(key);
    if (known !== undefined) return known;
    const compiled = await this.#compile(request, options, signal);
    if (key.length <= MAX_KEY_LENGTH) this.#cache.set(key, compiled, compiled.states);
    return compiled;
  }
}
