/** Conversions for one sampled turn: options to a request, a completion to the stored choice. */
import { ArgumentError } from "../errors.ts";
import type {
  AssistantChoice,
  ChatCompletion,
  ChatCompletionRequest,
  Choice,
  JsonObject,
  RequestMessage,
  Tool,
  ToolCall,
} from "../schema/index.ts";
import { stepOf, type Policy } from "./policy.ts";
import { samplingOf } from "./sampling.ts";
import { turnSeed, type TurnPosition } from "./seed.ts";

/** Options of `sample`. Absent options use the service's defaults. */
export interface SampleOptions {
  /** Sampling temperature, at least 0; 0 is greedy. Training expects 1. */
  readonly temperature?: number | undefined;
  /** Nucleus sampling probability, in (0, 1]. */
  readonly topP?: number | undefined;
  /** Number of most likely tokens to sample from; 0 or -1 = no limit. */
  readonly topK?: number | undefined;
  /** Maximum number of sampled tokens, at least 1. */
  readonly maxCompletionTokens?: number | undefined;
  /**
   * Random seed: the same rollout with the same seed gives the same tokens. One seed can be passed to every turn: the first turn of the
   * main conversation sends it unchanged, every other turn sends a hash of the seed and the turn's position.
   */
  readonly seed?: number | bigint | undefined;
  /** Stop sequences; sampling ends before the first match. */
  readonly stop?: string | readonly string[] | undefined;
  /** Tools for this turn, instead of the conversation's. */
  readonly tools?: readonly Tool[] | undefined;
  /** Whether the model may or must call tools; an object names the function to call. @default "auto" with tools, else "none" */
  readonly toolChoice?: "none" | "auto" | "required" | JsonObject | undefined;
  /** Variables of the chat template, such as `{ preserve_thinking: true }`; the template determines their effect. */
  readonly chatTemplateKwargs?: Readonly<JsonObject> | undefined;
  /** Aborts the request, which then rejects with the signal's reason. */
  readonly signal?: AbortSignal | undefined;
}

/** Result of `sample`: one turn, already appended to the conversation. */
export interface SampledTurn {
  /** Text of the turn; `""` for a turn of tool calls alone. */
  readonly text: string;
  /** Tool calls of the turn; empty without any. */
  readonly toolCalls: readonly ToolCall[];
  /** `stop`, `length`, `tool_calls` …; null if the service reported none. */
  readonly finishReason: string | null;
  /** Choice appended to the trajectory; frozen. */
  readonly choice: AssistantChoice;
}

/** Input of {@link toRequest}. */
export interface TurnInput extends Omit<SampleOptions, "signal"> {
  readonly messages: RequestMessage[];
  readonly tools: readonly Tool[];
  readonly turnPosition: TurnPosition;
}

/** Builds the chat request of a turn. */
export function toRequest(
  policy: Policy,
  { messages, tools, turnPosition, temperature, topP, topK, maxCompletionTokens, seed, stop, toolChoice, chatTemplateKwargs }: TurnInput,
): ChatCompletionRequest {
  return {
    model: policy.id,
    messages,
    // Training needs both the log-probabilities and the token ids.
    logprobs: true,
    return_token_ids: true,
    ...(temperature === undefined ? {} : { temperature }),
    ...(topP === undefined ? {} : { top_p: topP }),
    ...(topK === undefined ? {} : { top_k: topK }),
    ...(maxCompletionTokens === undefined ? {} : { max_completion_tokens: maxCompletionTokens }),
    ...(seed === undefined ? {} : { seed: turnSeed(seed, turnPosition) }),
    ...(stop === undefined ? {} : { stop: typeof stop === "string" ? stop : [...stop] }),
    ...(tools.length === 0 ? {} : { tools: [...tools] }),
    ...(toolChoice === undefined ? {} : { tool_choice: toolChoice }),
    ...(chatTemplateKwargs === undefined ? {} : { chat_template_kwargs: { ...chatTemplateKwargs } }),
  };
}

/** Converts a completion to the choice that a trajectory stores. @throws ArgumentError `E_ARGUMENT` for a completion without choices. */
export function toChoice(completion: ChatCompletion, policy: Policy, request: ChatCompletionRequest): AssistantChoice {
  const choice = completion.choices[0];
  if (choice === undefined) throw new ArgumentError(`The policy \`${policy.id}\` answered without a choice; expected one`);
  return storedChoice(choice, { completion, request, step: policy.step });
}

/**
 * Converts a choice to the form that a trajectory stores: with the prompt's token ids, the checkpoint step, and the sampling settings of
 * the request. `step` applies to completions that do not report a step.
 */
export function storedChoice(
  choice: Choice,
  {
    completion,
    request,
    step,
  }: { readonly completion: ChatCompletion; readonly request: ChatCompletionRequest; readonly step: number | null },
): AssistantChoice {
  const { prompt_token_ids: prompt, unused_template_kwargs: unused } = completion;
  return {
    ...choice,
    prompt_token_ids: prompt ?? null,
    policy_version: stepOf(completion.model) ?? step,
    ...(unused === undefined ? {} : { unused_template_kwargs: unused }),
    // The loss assumes log-probabilities of the plain softmax; preflight warns if the tokens came from another distribution.
    ...samplingOf(request),
  };
}
