/** One sampled turn: from options to a request, from a completion to the choice that is kept. */
import { ArgumentError } from "../errors.ts";
import type {
  AssistantChoice,
  ChatCompletion,
  ChatCompletionRequest,
  JsonObject,
  RequestMessage,
  Tool,
  ToolCall,
} from "../schema/index.ts";
import { stepOf, type Policy } from "./policy.ts";
import { samplingOf } from "./sampling.ts";
import { turnSeed, type TurnPlace } from "./seed.ts";

/** Options of `sample`. Absent ones are left to the service. */
export interface SampleOptions {
  /** At least 0; 0 is greedy. Training expects 1. */
  readonly temperature?: number | undefined;
  /** In (0, 1]. */
  readonly topP?: number | undefined;
  /** 0 or -1 = off. */
  readonly topK?: number | undefined;
  /** At least 1. */
  readonly maxCompletionTokens?: number | undefined;
  /**
   * The same rollout with the same seed gives the same tokens. May be the same at every turn: the first of the main conversation sends it
   * as it is, later ones and those of other histories a hash of it and of their place.
   */
  readonly seed?: number | bigint | undefined;
  /** Sampling ends before one of these texts. */
  readonly stop?: string | readonly string[] | undefined;
  /** Instead of the conversation's tools, for this turn. */
  readonly tools?: readonly Tool[] | undefined;
  readonly toolChoice?: "none" | "auto" | "required" | JsonObject | undefined;
  readonly signal?: AbortSignal | undefined;
}

/** One sampled turn. */
export interface SampledTurn {
  readonly text: string;
  readonly toolCalls: readonly ToolCall[];
  /** `stop`, `length`, `tool_calls` …; null if the service did not say. */
  readonly finishReason: string | null;
  /** What was appended to the trajectory; frozen. */
  readonly choice: AssistantChoice;
}

/** What a turn's request is made of. */
export interface TurnInput extends Omit<SampleOptions, "signal"> {
  readonly messages: RequestMessage[];
  readonly tools: readonly Tool[];
  readonly place: TurnPlace;
}

export function toRequest(
  policy: Policy,
  { messages, tools, place, temperature, topP, topK, maxCompletionTokens, seed, stop, toolChoice }: TurnInput,
): ChatCompletionRequest {
  return {
    model: policy.id,
    messages,
    // Without these two the turn could be read but not trained on.
    logprobs: true,
    return_token_ids: true,
    ...(temperature === undefined ? {} : { temperature }),
    ...(topP === undefined ? {} : { top_p: topP }),
    ...(topK === undefined ? {} : { top_k: topK }),
    ...(maxCompletionTokens === undefined ? {} : { max_completion_tokens: maxCompletionTokens }),
    ...(seed === undefined ? {} : { seed: turnSeed(seed, place) }),
    ...(stop === undefined ? {} : { stop: typeof stop === "string" ? stop : [...stop] }),
    ...(tools.length === 0 ? {} : { tools: [...tools] }),
    ...(toolChoice === undefined ? {} : { tool_choice: toolChoice }),
  };
}

export function toChoice(completion: ChatCompletion, policy: Policy, request: ChatCompletionRequest): AssistantChoice {
  const choice = completion.choices[0];
  if (choice === undefined) throw new ArgumentError(`The policy \`${policy.id}\` answered without a choice; expected one`);
  return {
    ...choice,
    prompt_token_ids: completion.prompt_token_ids ?? null,
    policy_version: stepOf(completion.model) ?? policy.step,
    // The loss takes the log-probabilities of the plain softmax; preflight warns where the tokens came from another one.
    ...samplingOf(request),
  };
}
