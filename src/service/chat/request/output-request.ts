/** Requested form of the output, from `structured_outputs`, `response_format` and a `tool_choice` that forces calls. */
import type { RequestTool } from "../../../base/schema/chat.ts";
import { BodyError } from "./errors.ts";
import type { ChatFields } from "./fields.ts";

/** Form of the text of each choice. */
export type OutputForm =
  /** JSON text that is valid for a schema, which is given as a value or as JSON text. */
  | { readonly kind: "json"; readonly schema: unknown }
  | { readonly kind: "json_object" }
  | { readonly kind: "regex"; readonly pattern: string }
  | { readonly kind: "choice"; readonly options: readonly string[] }
  | { readonly kind: "grammar"; readonly source: string }
  /** Structural tag, given as a value or as JSON text. */
  | { readonly kind: "structural_tag"; readonly tag: unknown }
  /** Array of calls, each `{"name": …, "parameters": {…}}`; exactly one call if `isOne`. */
  | { readonly kind: "calls"; readonly tools: readonly RequestTool[]; readonly isOne: boolean }
  /** Arguments of one call. */
  | { readonly kind: "arguments"; readonly tool: RequestTool };

/** Form of the output, and the JSON syntax in it. */
export interface OutputRequest {
  readonly form: OutputForm;
  /** Pattern of the white space between the parts of a JSON text; null for the default white space, empty for none. */
  readonly whitespacePattern: string | null;
  /** Whether objects may have only the members that their schemas name, unless a schema sets `additionalProperties`. */
  readonly closesObjects: boolean;
}

type StructuredOutputs = NonNullable<ChatFields["structured_outputs"]>;

/** Returns the form that `structured_outputs` requires; null if it has only options of the JSON syntax. */
function formOfOutputs(outputs: StructuredOutputs): OutputForm | null {
  const { json, regex, choice, grammar, json_object: isObject, structural_tag: tag } = outputs;
  if (json !== undefined && json !== null) return { kind: "json", schema: json };
  if (typeof regex === "string") return { kind: "regex", pattern: regex };
  if (choice) return { kind: "choice", options: choice };
  if (typeof grammar === "string") return { kind: "grammar", source: grammar };
  if (isObject === true) return { kind: "json_object" };
  return typeof tag === "string" ? { kind: "structural_tag", tag } : null;
}

/** Returns the form that `response_format` requires; null for free text. */
function formOfResponse(format: ChatFields["response_format"]): OutputForm | null {
  switch (format?.type) {
    case "json_object":
      return { kind: "json_object" };
    case "json_schema": {
      const schema = format.json_schema?.schema;
      if (schema !== undefined && schema !== null) return { kind: "json", schema };
      throw new BodyError("`response_format.json_schema` must have a `schema`", { param: "response_format" });
    }
    case "structural_tag":
      return { kind: "structural_tag", tag: format };
    case "text":
    case undefined:
      return null;
  }
}

/** Returns the calls that a request forces; null if it forces none. The function that it names exists: `checkRawBody` has run before. */
export function forcedCalls(body: ChatFields): Extract<OutputForm, { kind: "calls" | "arguments" }> | null {
  const { tool_choice: choice, tools } = body;
  if (!tools?.length || choice === undefined || choice === null) return null;
  if (choice === "required") return { kind: "calls", tools, isOne: body.parallel_tool_calls === false };
  if (typeof choice === "string") return null;
  const { name } = choice["function"] as { readonly name: string };
  return { kind: "arguments", tool: tools.find((tool) => tool.function.name === name)! };
}

/**
 * Returns the requested form of the output; null if a request has none.
 *
 * Forced calls take precedence. If both other fields give a form of the same kind, `response_format` wins.
 *
 * @throws {@link BodyError} `E_ARGUMENT` for fields that contradict each other, and a format without its schema.
 */
export function toOutputRequest(body: ChatFields): OutputRequest | null {
  const outputs = body.structured_outputs ?? null;
  const jsonSyntax = {
    whitespacePattern: outputs?.disable_any_whitespace === true ? "" : (outputs?.whitespace_pattern ?? null),
    closesObjects: outputs?.disable_additional_properties === true,
  };
  const forced = forcedCalls(body);
  if (forced !== null) return { form: forced, ...jsonSyntax };
  const outputsForm = outputs === null ? null : formOfOutputs(outputs);
  const responseForm = formOfResponse(body.response_format);
  if (outputsForm !== null && responseForm !== null && outputsForm.kind !== responseForm.kind)
    throw new BodyError(
      `\`structured_outputs\` asks for ${outputsForm.kind} and \`response_format\` for ${responseForm.kind}; send one of them`,
    );
  const form = responseForm ?? outputsForm;
  if (form === null && outputs !== null)
    throw new BodyError("`structured_outputs.json_object` must be true where it is set: false asks for nothing");
  return form === null ? null : { form, ...jsonSyntax };
}
