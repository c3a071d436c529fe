/**
 * Consistency checks between fields, on the body as received; `checkRawBody`, at the end, runs them. They run before types are checked
 * (`readChatFields`), and the first failure is reported. Most values of a wrong type are skipped here, and reported by the check of types.
 */
import { isGiven } from "../../../dialects/index.ts";
import { BodyError } from "./errors.ts";
import { toBoolean, toInteger } from "./coercion.ts";
import { isObject } from "./messages.ts";
import { shown } from "../../../base/util/shown.ts";

/** Members of a body, of any type. */
type RawBody = Readonly<Record<string, unknown>>;

/** Checks the fields that change the prompt. */
function checkPromptFlags(body: RawBody): void {
  if (body["cache_salt"] === "") throw new BodyError("Expected `cache_salt` to be a non-empty string when it is set");
  if (toBoolean(body["continue_final_message"]) === true && toBoolean(body["add_generation_prompt"]) === true) {
    throw new BodyError("`continue_final_message` and `add_generation_prompt` cannot both be true; send add_generation_prompt: false");
  }
}

/** Returns the names of the functions in `tools`; undefined for a malformed tool. */
function toolNames(tools: unknown): readonly unknown[] {
  if (!Array.isArray(tools)) return [];
  return tools.map((tool) => (isObject(tool) && isObject(tool["function"]) ? tool["function"]["name"] : undefined));
}

/** Returns the error for a `tool_choice` of an unknown form. */
function toolChoiceError(choice: unknown): BodyError {
  return new BodyError(`Expected \`tool_choice\` to be none, auto, required or an object that names a function, got ${shown(choice)}`);
}

/** Checks `tool_choice` against `tools` and `structured_outputs`. */
function checkTools(body: RawBody): void {
  const { tool_choice: choice, tools } = body;
  if (!isGiven(choice) || choice === "none") return;
  if (typeof choice !== "string" && !isObject(choice)) throw toolChoiceError(choice);
  if (!isGiven(tools)) throw new BodyError("When `tool_choice` is used, `tools` must be set");
  if (choice === "auto" || choice === "required") return;
  if (typeof choice === "string") throw toolChoiceError(choice);
  const { function: called } = choice;
  if (!isObject(called))
    throw new BodyError('Expected `tool_choice` to be {"type": "function", "function": {"name": …}}: `function` must be an object');
  const { name } = called;
  if (typeof name !== "string" || name === "") throw new BodyError("Expected `tool_choice.function.name` to be a non-empty string");
  if (!toolNames(tools).includes(name))
    throw new BodyError(`\`tool_choice\` names the function ${shown(name)}, which is not among \`tools\``);
  if (isGiven(body["structured_outputs"]))
    throw new BodyError("`structured_outputs` and a `tool_choice` that names a function contradict each other; send one of them");
}

/** Members of `structured_outputs` that require a form; the others are options of the JSON syntax. */
const CONSTRAINTS = ["json", "regex", "choice", "grammar", "json_object", "structural_tag"];

/** Checks that `structured_outputs` sets one form, or only options for the form of `response_format`. */
function checkStructuredOutputs({ structured_outputs: outputs, response_format: format }: RawBody): void {
  if (!isGiven(outputs)) return;
  if (!isObject(outputs)) throw new BodyError(`Expected \`structured_outputs\` to be an object, got ${shown(outputs)}`);
  const chosen = CONSTRAINTS.filter((name) => isGiven(outputs[name]));
  if (chosen.length === 1) return;
  const hasOnlySyntax = chosen.length === 0 && Object.keys(outputs).length > 0;
  const isFormInResponseFormat = isObject(format) && format["type"] !== "text";
  if (hasOnlySyntax && isFormInResponseFormat) return;
  const got = chosen.length === 0 ? "none" : chosen.join(", ");
  throw new BodyError(`Expected \`structured_outputs\` to set exactly one of ${CONSTRAINTS.join(", ")}, got ${got}`);
}

/** Checks the numbers of alternatives, and that the fields they depend on are set. */
function checkLogprobs(body: RawBody): void {
  const isStream = toBoolean(body["stream"]) === true;
  const promptLogprobs = toInteger(body["prompt_logprobs"]);
  if (promptLogprobs !== undefined && promptLogprobs < -1)
    throw new BodyError(`Expected \`prompt_logprobs\` to be -1 or more, got ${promptLogprobs}`, { param: "prompt_logprobs" });
  if (promptLogprobs !== undefined && promptLogprobs !== 0 && isStream)
    throw new BodyError("`prompt_logprobs` are not available when `stream` is true", { param: "prompt_logprobs" });
  const topLogprobs = toInteger(body["top_logprobs"]);
  if (topLogprobs === undefined) return;
  if (topLogprobs < -1) throw new BodyError(`Expected \`top_logprobs\` to be -1 or more, got ${topLogprobs}`, { param: "top_logprobs" });
  if (topLogprobs !== 0 && toBoolean(body["logprobs"]) !== true)
    throw new BodyError("When `top_logprobs` is used, `logprobs` must be true", { param: "top_logprobs" });
}

/** Checks that only a stream has options. */
function checkStreamOptions(body: RawBody): void {
  const options = body["stream_options"];
  if (isObject(options) && Object.keys(options).length > 0 && toBoolean(body["stream"]) !== true) {
    throw new BodyError("`stream_options` are allowed only when `stream` is true", { param: "stream_options" });
  }
}

/** Checks that a format with a schema has one. */
function checkResponseFormat(format: unknown): void {
  if (isObject(format) && format["type"] === "json_schema" && !isGiven(format["json_schema"])) {
    throw new BodyError("When `response_format.type` is json_schema, `response_format.json_schema` must be provided", {
      param: "response_format",
    });
  }
}

/**
 * Runs every consistency check between fields.
 *
 * @throws {@link BodyError} `E_ARGUMENT` for the first pair of fields that contradict each other.
 */
export function checkRawBody(body: RawBody): void {
  checkPromptFlags(body);
  checkTools(body);
  checkStructuredOutputs(body);
  checkLogprobs(body);
  checkStreamOptions(body);
  checkResponseFormat(body["response_format"]);
}
