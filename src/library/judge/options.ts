/** Options that all judges have, and their validation. */
import { ConfigError } from "../../base/errors.ts";
import type { ChatCompletionRequest } from "../../base/schema/index.ts";
import type { JudgeModel } from "./model.ts";

/** Form in which a judge is asked for JSON; see {@link JudgeOptions.output}. */
export type JudgeOutput = "auto" | "schema" | "text";

/** Options shared by all judges. */
export interface JudgeOptions {
  /** Model that judges: a {@link JudgeEndpoint}, a `Policy`, or any object of the shape. */
  readonly model: JudgeModel;
  /** Name of the reward; its value is recorded as the metric `reward/<name>`. @default the kind of judge, e.g. `"relative"` */
  readonly name?: string | undefined;
  /** Factor of the value in the total reward; finite. @default 1 */
  readonly weight?: number | undefined;
  /** Number of independent answers; the value is their median. An odd number is best. @default 1 */
  readonly samples?: number | undefined;
  /** Whether the judge explains each score. Explanations are appended to the logs of the trajectory. @default true */
  readonly explain?: boolean | undefined;
  /**
   * Form of the output. `schema` sends a JSON schema as `response_format`. `text` only describes the format in the prompt. `auto` sends the
   * schema until the model rejects it with 400 or 422, then only the description.
   *
   * @default "auto"
   */
  readonly output?: JudgeOutput | undefined;
  /** Further fields of each request, such as `temperature` or `max_completion_tokens`. @default {} */
  readonly request?: JudgeRequestFields | undefined;
  /** Directory of stored answers, created if it is missing. A repeated question is answered from it without a request. @default no cache */
  readonly cacheDir?: string | undefined;
}

/** Fields of a chat request that {@link JudgeOptions.request} may set. */
export type JudgeRequestFields = Partial<
  Omit<ChatCompletionRequest, "model" | "messages" | "n" | "stream" | "response_format" | "tools" | "tool_choice">
>;

/** Fields of a request that the judge sets; the fields that {@link JudgeRequestFields} omits. */
const RESERVED = ["model", "messages", "n", "stream", "response_format", "tools", "tool_choice"];
/** Values of {@link JudgeOutput}. */
const OUTPUTS: readonly unknown[] = ["auto", "schema", "text"];

/** Checked options with defaults. */
export type ResolvedJudgeOptions = Readonly<ReturnType<typeof resolvedOptions>>;

/** Checks the options shared by all judges and adds the defaults. @throws ConfigError `E_CONFIG` for an invalid option. */
export function resolvedOptions(options: JudgeOptions, defaultName: string) {
  const { model, name = defaultName, weight = 1, samples = 1, explain = true, output = "auto", request = {}, cacheDir } = options;
  const fail = (param: string, expected: string, value: unknown): never => {
    throw new ConfigError(`Expected \`${param}\` of a judge to be ${expected}, got \`${String(value)}\``, { param });
  };
  if (typeof model?.id !== "string" || typeof model.complete !== "function") {
    fail("model", "an object with `id` and `complete`, such as `judgeEndpoint({ … })` or a policy", typeof model);
  }
  if (typeof name !== "string" || name.trim() === "") fail("name", "a text that is not empty", name);
  if (!Number.isFinite(weight)) fail("weight", "a finite number", weight);
  if (!Number.isSafeInteger(samples) || samples < 1) fail("samples", "an integer of at least 1", samples);
  if (typeof explain !== "boolean") fail("explain", "a boolean", explain);
  if (!OUTPUTS.includes(output)) fail("output", '"auto", "schema" or "text"', output);
  if (cacheDir !== undefined && (typeof cacheDir !== "string" || cacheDir === "")) fail("cacheDir", "the path of a directory", cacheDir);
  const reserved = RESERVED.find((field) => field in request);
  if (reserved !== undefined) fail("request", `without \`${reserved}\`, which the judge sets`, reserved);
  return { model, name, weight, samples, explain, output, request, cacheDir };
}
