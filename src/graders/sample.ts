/** Output of a model as the variables of a grader's templates. */
import type { Choice, ToolCall } from "../base/schema/index.ts";
import { parseNestedJson } from "../base/util/json-size.ts";

/** Output of a model to grade, in the format of the wire. */
export interface GraderSample {
  /** Text of the answer, without reasoning and tool calls. */
  readonly output_text: string;
  /** Tool calls of the output. @default [] */
  readonly output_tools?: readonly ToolCall[] | undefined;
  /** Choices of the chat completion, of which the first one is graded. @default a choice made of text and tool calls */
  readonly choices?: readonly Choice[] | undefined;
}

/** Values of the namespace `sample`; `output_json` is undefined if the text is not JSON. */
export interface GradedSample {
  readonly output_text: string;
  readonly output_json: unknown;
  readonly output_tools: readonly ToolCall[];
  readonly choices: readonly Choice[];
}

/** Returns the variables of a sample. The text is parsed once. */
export function gradedSample({ output_text: text, output_tools: tools = [], choices }: GraderSample): GradedSample {
  const message = { role: "assistant", content: text, ...(tools.length > 0 ? { tool_calls: [...tools] } : {}) };
  return {
    output_text: text,
    output_json: jsonOf(text),
    output_tools: tools,
    choices: choices ?? [{ index: 0, message, finish_reason: tools.length > 0 ? "tool_calls" : "stop" }],
  };
}

/** Parses JSON; undefined for a text that is not JSON, or nested too deep. */
function jsonOf(text: string): unknown {
  try {
    return parseNestedJson(text);
  } catch {
    return undefined;
  }
}
