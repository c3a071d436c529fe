/** From what a request says about its output to the grammar of it. */
import { checkGrammar } from "../../../engine/grammar/check.ts";
import { complement, intersection } from "../../../engine/grammar/code-points.ts";
import {
  GrammarBuilder,
  choiceOf,
  repeat,
  sequence,
  text,
  type CodePointRange,
  type Expression,
  type Grammar,
} from "../../../engine/grammar/expression.ts";
import { ArgumentError } from "../../../errors.ts";
import { parseNestedJson } from "../../../util/json-size.ts";
import { WeightedCache } from "../../../util/weighted-cache.ts";
import { shown } from "../coercion.ts";
import type { RequestTool } from "../../../schema/chat.ts";
import { ebnfExpression } from "./ebnf.ts";
import { textWithout } from "./free-text.ts";
import { isLark, larkExpression } from "./lark.ts";
import type { OutputForm, OutputRequest } from "./output-request.ts";
import { regexExpression } from "./regex.ts";
import { SchemaCompiler } from "./schema/compiler.ts";
import { toSchema, type Schema } from "./schema/keywords.ts";
import { structuralTagExpression } from "./structural-tag.ts";

function parsed(value: unknown, field: string): unknown {
  if (typeof value !== "string") return value;
  try {
    return parseNestedJson(value);
  } catch (cause) {
    if (!(cause instanceof SyntaxError)) throw cause;
    throw new ArgumentError(`\`${field}\` is not JSON: ${cause.message}`, { cause });
  }
}

/** The schema of a tool's arguments: an object, and without parameters an empty one. */
function argumentsSchema({ function: { name, parameters } }: RequestTool): Schema {
  const { type = "object", ...rest } = parameters ?? {};
  if (type !== "object")
    throw new ArgumentError(`Expected the \`parameters\` of the tool ${name} to be of type object, got ${shown(type)}`);
  return { type, ...rest };
}

const SPACES: readonly CodePointRange[] = [
  [0x09, 0x0a],
  [0x0d, 0x0d],
  [0x20, 0x20],
];

/** Whether an expression describes nothing but what JSON takes as white space. */
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

function whitespaceOf(pattern: string): Expression {
  const name = "`structured_outputs.whitespace_pattern`";
  const expression = regexExpression(pattern, { of: "whole", name });
  if (!isBlank(expression))
    throw new ArgumentError(`Expected ${name} to describe only spaces, tabs and line breaks, which JSON allows, got ${shown(pattern)}`);
  return expression;
}

function callsOf(tools: readonly RequestTool[], isOne: boolean, compiler: SchemaCompiler): Expression {
  const { whitespace } = compiler.parts;
  const call = choiceOf(
    tools.map((tool) =>
      sequence(
        text("{"),
        whitespace,
        text('"name"'),
        whitespace,
        text(":"),
        whitespace,
        text(JSON.stringify(tool.function.name)),
        whitespace,
        text(","),
        whitespace,
        text('"parameters"'),
        whitespace,
        text(":"),
        whitespace,
        compiler.document(argumentsSchema(tool)),
        whitespace,
        text("}"),
        whitespace,
      ),
    ),
  );
  const more = repeat(sequence(text(","), whitespace, call), 0, isOne ? 0 : null);
  return sequence(text("["), whitespace, call, more, text("]"));
}

function expressionOf(form: OutputForm, compiler: SchemaCompiler): Expression {
  switch (form.kind) {
    case "json":
      return compiler.document(toSchema(parsed(form.schema, "structured_outputs.json"), "json", "#"));
    case "json_object":
      return compiler.parts.object;
    case "regex":
      return regexExpression(form.pattern, { of: "whole", name: "`structured_outputs.regex`" });
    case "choice":
      return choiceOf(form.options.map(text));
    case "grammar":
      return isLark(form.source) ? larkExpression(form.source, compiler.builder) : ebnfExpression(form.source, compiler.builder);
    case "structural_tag":
      return structuralTagExpression(parsed(form.tag, "structured_outputs.structural_tag"), compiler);
    case "calls":
      return callsOf(form.tools, form.isOne, compiler);
    case "arguments":
      return compiler.document(argumentsSchema(form.tool));
  }
}

/** How {@link toGrammar} makes a grammar. */
export interface OutputGrammarOptions {
  /** What ends the reasoning with which the text begins; null where it begins with what the request is about. */
  readonly reasoningEnd: string | null;
}

/**
 * The grammar of a request's output, and about how many states it takes.
 *
 * @throws ArgumentError `E_ARGUMENT` for a schema, expression, grammar or tag that is not well-formed, or that no text matches.
 * @throws UnsupportedError `E_UNSUPPORTED` naming what of it cannot be enforced exactly.
 */
export function toGrammar({ form, whitespacePattern, closesObjects }: OutputRequest, { reasoningEnd }: OutputGrammarOptions): SizedGrammar {
  const builder = new GrammarBuilder();
  const whitespace = whitespacePattern === null ? undefined : whitespaceOf(whitespacePattern);
  const isCall = form.kind === "calls" || form.kind === "arguments";
  const compiler = new SchemaCompiler(builder, { whitespace, closesObjects: closesObjects || isCall });
  const expression = expressionOf(form, compiler);
  const root = reasoningEnd === null ? expression : sequence(textWithout([reasoningEnd], builder), text(reasoningEnd), expression);
  const grammar = builder.build(root);
  return { grammar, states: checkGrammar(grammar).states };
}

/** Grammars kept; the one not used for longest goes first. */
const MAX_KEPT = 64;
/** What is longer is made anew each time. */
const MAX_KEY_LENGTH = 65_536;

/** States of all kept grammars together: a few of the largest, or the {@link MAX_KEPT} of any run. */
const MAX_KEPT_STATES = 1_000_000;

/** A grammar, and about how many states it takes. */
export interface SizedGrammar {
  readonly grammar: Grammar;
  readonly states: number;
}

/** Makes a grammar: {@link toGrammar}, on this thread or another. */
type GrammarMaker = (request: OutputRequest, options: OutputGrammarOptions) => SizedGrammar | Promise<SizedGrammar>;

/** The grammars of requests, remembered: the requests of a run mostly ask for the same form. */
export class OutputGrammars {
  readonly #kept = new WeightedCache<Grammar>({ maxEntries: MAX_KEPT, maxWeight: MAX_KEPT_STATES });
  readonly #make: GrammarMaker;

  /** @param make - @default on this thread */
  constructor(make: GrammarMaker = toGrammar) {
    this.#make = make;
  }

  /**
   * @throws ArgumentError `E_ARGUMENT` for a schema, expression, grammar or tag that is not well-formed, or that no text matches.
   * @throws UnsupportedError `E_UNSUPPORTED` naming the part that cannot be enforced exactly.
   */
  async grammar(request: OutputRequest, options: OutputGrammarOptions): Promise<Grammar> {
    const key = JSON.stringify([request, options]);
    const known = this.#kept.get(key);
    if (known !== undefined) return known;
    const { grammar, states } = await this.#make(request, options);
    if (key.length <= MAX_KEY_LENGTH) this.#kept.set(key, grammar, states);
    return grammar;
  }
}
