/** Graders that ask a model: the request, the strict parsing of the answer, and its tokens. */
import { z } from "zod";
import type {
  ChatCompletion,
  ChatCompletionRequest,
  GraderMessage,
  JsonObject,
  LabelModelGrader,
  RequestMessage,
  ScoreModelGrader,
} from "../base/schema/index.ts";
import { abortable } from "../base/util/abort.ts";
import { isRetryable } from "../base/util/retryable.ts";
import { shortened } from "../base/util/shown.ts";
import { parseWith } from "../base/util/validation.ts";
import { messageOf, parseJson } from "../base/util/values.ts";
import { GraderError } from "./errors.ts";

/**
 * Answers the requests of model graders, such as `service.chat.completions.create`, or `complete` of a judge endpoint.
 *
 * @param request - Chat request; `model` is the grader's model.
 * @param options - Signal that aborts the request.
 * @returns the chat completion.
 */
export type GraderComplete = (
  request: ChatCompletionRequest,
  options: { readonly signal?: AbortSignal | undefined },
) => Promise<ChatCompletion>;

/** Answer of a model, with its tokens. */
export interface ModelAnswer {
  /** Model that answered. */
  readonly model: string;
  readonly promptTokens: number;
  readonly completionTokens: number;
  readonly cachedTokens: number;
}

/** Grader that asks a model. */
type ModelGrader = ScoreModelGrader | LabelModelGrader;

/** Inputs of {@link askModel}. */
export interface AskOptions {
  readonly complete: GraderComplete;
  readonly signal: AbortSignal | undefined;
  /** Renders a template. */
  readonly render: (template: string) => string;
  /** Called with each answer before it is parsed. */
  readonly onAnswer: (answer: ModelAnswer) => void;
}

/**
 * Returns the score that a model gives: its score, clamped to the range of the grader, or 1 for a passing label and 0 for any other label.
 *
 * @throws GraderError `E_GRADER` with the flag of the failure.
 * @throws the signal's reason.
 */
export async function askModel(grader: ModelGrader, { complete, signal, render, onAnswer }: AskOptions): Promise<number> {
  const request = graderRequest(grader, render);
  const completion = await withGraderErrors(() => complete(request, { signal }), signal);
  onAnswer(modelAnswer(completion, grader.model));
  const text = answerText(completion);
  if (grader.type === "label_model") {
    const label = parseResult(text, labelAnswer(grader.labels));
    return Number(grader.passing_labels.includes(label));
  }
  const [min = 0, max = 1] = grader.range ?? [];
  const score = parseResult(text, scoreAnswer);
  return Math.min(max, Math.max(min, score));
}

/** Sends a request. @throws GraderError `E_GRADER` for a failed request and for a timeout of the model */
async function withGraderErrors(send: () => Promise<ChatCompletion>, signal: AbortSignal | undefined): Promise<ChatCompletion> {
  try {
    return await abortable(send(), signal);
  } catch (error) {
    signal?.throwIfAborted();
    const isTimeout = error instanceof Error && error.name === "TimeoutError";
    const message = `The model did not answer: ${messageOf(error)}`;
    throw new GraderError(isTimeout ? "unresponsive_reward_error" : "model_grader_server_error", message, {
      cause: error,
      retryable: isRetryable(error),
    });
  }
}

/** Returns the chat request of a model grader. The answer has the steps before the result, so that the model reasons before it decides. */
function graderRequest(grader: ModelGrader, render: AskOptions["render"]): ChatCompletionRequest {
  const messages = grader.input.map((message) => requestMessageOf(message, render));
  const isScore = grader.type === "score_model";
  const result = isScore ? { type: "number" } : { type: "string", enum: grader.labels };
  const schema = objectSchema({ steps: { type: "array", items: STEP }, result });
  const format = { type: "json_schema", json_schema: { name: isScore ? "score" : "label", strict: true, schema } };
  return { model: grader.model, messages, response_format: format, ...(isScore ? samplingOf(grader) : {}) };
}

/** Returns the JSON schema of an object with exactly these properties. */
function objectSchema(properties: JsonObject): JsonObject {
  return { type: "object", properties, required: Object.keys(properties), additionalProperties: false };
}

/** JSON schema of a step of the model's reasoning. */
const STEP = objectSchema({ description: { type: "string" }, conclusion: { type: "string" } });

/** Returns the sampling settings as fields of a chat request. */
function samplingOf({ sampling_params: sampling = {} }: ScoreModelGrader): Partial<ChatCompletionRequest> {
  const { max_completions_tokens: maxTokens, ...others } = sampling;
  const fields = { max_completion_tokens: maxTokens, ...others };
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== null && value !== undefined));
}

/** Returns a message of a grader with rendered templates. */
function requestMessageOf({ role, content }: GraderMessage, render: AskOptions["render"]): RequestMessage {
  if (typeof content === "string") return { role, content: render(content) };
  const parts = Array.isArray(content) ? content : [content];
  return { role, content: parts.map((part) => ({ type: "text", text: render(typeof part === "string" ? part : part.text) })) };
}

/** Returns the tokens of an answer. `requested` is the model of the request, for servers that name none. */
function modelAnswer({ model, usage }: ChatCompletion, requested: string): ModelAnswer {
  return {
    model: model || requested,
    promptTokens: usage?.prompt_tokens ?? 0,
    completionTokens: usage?.completion_tokens ?? 0,
    cachedTokens: usage?.prompt_tokens_details?.cached_tokens ?? 0,
  };
}

/** Returns the text of the first choice. @throws GraderError `E_GRADER` for a refusal, an empty answer, and one that was cut off */
function answerText({ choices }: ChatCompletion): string {
  const [choice] = choices ?? [];
  const { content, refusal } = choice?.message ?? {};
  if (refusal || choice?.finish_reason === "content_filter") {
    throw new GraderError("model_grader_refusal_error", `The model refused to answer: ${shortened(refusal ?? content ?? "", 200)}`);
  }
  if (choice?.finish_reason === "length") {
    const remedy = "raise `max_completions_tokens`, or lower the effort";
    throw new GraderError("model_grader_parse_error", `The answer of the model was cut off at its token limit; ${remedy}`);
  }
  if (!content) throw new GraderError("unresponsive_reward_error", "The answer of the model is empty");
  return content;
}

/** Schema of the steps of reasoning in an answer. This schema and the next two accept the same answers as the JSON schemas of the requests. */
const steps = z.array(z.strictObject({ description: z.string(), conclusion: z.string() }));
/** Schema of the answer with a score. */
const scoreAnswer = z.strictObject({ steps, result: z.number() });
/** Returns the schema of the answer with one of the labels. */
const labelAnswer = (labels: readonly string[]) => z.strictObject({ steps, result: z.literal(labels) });

/** Returns the result of an answer. @throws GraderError `E_GRADER` for an answer that does not have the form of the schema */
function parseResult<T>(text: string, schema: z.ZodType<{ readonly result: T }>): T {
  const parsed = parseWith(schema, parseJson(text), [], "the answer");
  if ("data" in parsed) return parsed.data.result;
  const expected = 'Expected `{"steps": […], "result": …}` as the answer of the model';
  throw new GraderError("model_grader_parse_error", `${expected}, got \`${shortened(text, 200)}\`: ${parsed.mismatch.text}`);
}
