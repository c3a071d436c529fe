import { ArgumentError, ConflictError } from "../errors.ts";
import type {
  AssistantChoice,
  ChatCompletion,
  ChatCompletionRequest,
  JsonObject,
  MessageOrChoice,
  RequestMessage,
  Tool,
  ToolCall,
} from "../schema/index.ts";
import { isChoice, textOf, toMessages } from "./messages.ts";
import { stepOf, type Policy } from "./policy.ts";
import { samplingOf } from "./sampling.ts";
import { Trajectory, type Scalar } from "./trajectory.ts";

/** Options of {@link trajectory}. */
export interface TrajectoryOptions {
  /** The conversation so far. */
  readonly messages: readonly RequestMessage[];
  /** Tools offered at every turn. @default none */
  readonly tools?: readonly Tool[] | undefined;
  /** Facts about the rollout, e.g. its task. @default {} */
  readonly metadata?: Readonly<Record<string, Scalar>> | undefined;
}

/** Options of {@link TrajectoryBuilder.sample}. Absent ones are left to the service. */
export interface SampleOptions {
  /** At least 0; 0 is greedy. Training expects 1. */
  readonly temperature?: number | undefined;
  /** In (0, 1]. */
  readonly topP?: number | undefined;
  /** 0 or -1 = off. */
  readonly topK?: number | undefined;
  /** At least 1. */
  readonly maxCompletionTokens?: number | undefined;
  /** The same request with the same seed gives the same tokens. */
  readonly seed?: number | bigint | undefined;
  /** Sampling ends before one of these texts. */
  readonly stop?: string | readonly string[] | undefined;
  /** Instead of the trajectory's tools, for this turn. */
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
  /** What was appended to the trajectory. */
  readonly choice: AssistantChoice;
}

/** What {@link TrajectoryBuilder.finish} takes. */
export interface FinishOptions {
  /** Finite. */
  readonly reward: number;
  /** Added to what the rollout recorded; finite numbers or booleans. */
  readonly metrics?: Readonly<Record<string, number | boolean>> | undefined;
}

/**
 * Starts a rollout.
 *
 * @example
 * ```ts
 * const t = trajectory({ messages: [{ role: "user", content: "Reverse: abc" }] });
 * await t.sample(policy, { temperature: 1, maxCompletionTokens: 32 });
 * const finished = t.finish({ reward: t.lastText === "cba" ? 1 : 0 });
 * ```
 */
export function trajectory(options: TrajectoryOptions): TrajectoryBuilder {
  return new TrajectoryBuilder(options);
}

/** A rollout under way. Every method that appends does so after the one before it has settled; one turn at a time. */
export class TrajectoryBuilder {
  /** Numbers of this rollout; `finish` adds `duration` (seconds). */
  readonly metrics: Record<string, number | boolean> = {};
  readonly metadata: Record<string, Scalar>;
  readonly tools: readonly Tool[];
  readonly #items: MessageOrChoice[];
  readonly #logs: string[] = [];
  readonly #startedAtMs = performance.now();
  readonly #startTime = new Date().toISOString();
  #isFinished = false;
  #isSampling = false;

  constructor({ messages, tools = [], metadata = {} }: TrajectoryOptions) {
    if (!Array.isArray(messages)) throw new ArgumentError("Expected `messages` to be an array of messages", { param: "messages" });
    this.#items = messages.map(checkedItem);
    this.tools = tools;
    this.metadata = { ...metadata };
  }

  /**
   * Samples one turn and appends it with its token ids, log-probabilities and policy version.
   *
   * @throws ConflictError `E_CONFLICT` when the trajectory is finished or another turn is being sampled.
   * @throws whatever the policy throws; then nothing was appended.
   */
  async sample(policy: Policy, { signal, tools = this.tools, ...options }: SampleOptions = {}): Promise<SampledTurn> {
    this.#mustBeOpen();
    if (this.#isSampling)
      throw new ConflictError("A turn of this trajectory is already being sampled; await it, or use one trajectory per conversation");
    signal?.throwIfAborted();
    this.#isSampling = true;
    try {
      const request = toRequest(policy, this.messages(), tools, options);
      const completion = await policy.complete(request, { signal });
      this.#mustBeOpen();
      const choice = toChoice(completion, policy, request);
      this.#items.push(choice);
      return { text: textOf(choice), toolCalls: choice.message.tool_calls ?? [], finishReason: choice.finish_reason ?? null, choice };
    } finally {
      this.#isSampling = false;
    }
  }

  /** Appends context (a tool result, a user turn), or a choice sampled elsewhere. */
  add(item: MessageOrChoice): this {
    this.#mustBeOpen();
    this.#items.push(checkedItem(item));
    return this;
  }

  /** Text of the last item, `""` if there is none. */
  get lastText(): string {
    const last = this.#items.at(-1);
    return last === undefined ? "" : textOf(last);
  }

  /** The plain conversation so far; a new array. */
  messages(): RequestMessage[] {
    return toMessages(this.#items);
  }

  /** Runs `run` and adds its seconds to the metric `{name}_duration`, also when it throws. */
  async track<T>(name: string, run: () => T | Promise<T>): Promise<T> {
    const startedAtMs = performance.now();
    try {
      return await run();
    } finally {
      const key = `${name}_duration`;
      this.metrics[key] = Number(this.metrics[key] ?? 0) + (performance.now() - startedAtMs) / 1000;
    }
  }

  /** Appends a line to the trajectory's log. */
  log(line: string): this {
    this.#mustBeOpen();
    this.#logs.push(line);
    return this;
  }

  /**
   * Ends the rollout.
   *
   * @throws ArgumentError `E_ARGUMENT` for a reward or metric that is not finite.
   * @throws ConflictError `E_CONFLICT` when called twice or while a turn is being sampled.
   */
  finish({ reward, metrics = {} }: FinishOptions): Trajectory {
    this.#mustBeOpen();
    if (this.#isSampling) throw new ConflictError("A turn is still being sampled; await `sample` before `finish`");
    if (typeof reward !== "number" || !Number.isFinite(reward)) {
      throw new ArgumentError(`Expected \`reward\` to be a finite number, got \`${String(reward)}\` (${typeof reward})`, {
        param: "reward",
      });
    }
    const all: Record<string, number | boolean> = { ...this.metrics, ...metrics };
    for (const [name, value] of Object.entries(all)) {
      if (typeof value !== "boolean" && !Number.isFinite(value)) {
        throw new ArgumentError(`Expected metric \`${name}\` to be a finite number or a boolean, got \`${String(value)}\``, {
          param: `metrics.${name}`,
        });
      }
    }
    this.#isFinished = true;
    const choices = this.#items.filter(isChoice);
    // Copied down to the leaves: the finished trajectory is frozen, the caller's own messages must not be.
    return Trajectory.fromWire(
      structuredClone({
        messages_and_choices: this.#items,
        tools: this.tools.length === 0 ? null : [...this.tools],
        additional_histories: [],
        reward,
        initial_policy_version: choices[0]?.policy_version ?? null,
        final_policy_version: choices.at(-1)?.policy_version ?? null,
        metrics: { ...all, duration: (performance.now() - this.#startedAtMs) / 1000 },
        metadata: this.metadata,
        logs: this.#logs,
        start_time: this.#startTime,
      }),
    );
  }

  #mustBeOpen(): void {
    if (this.#isFinished) throw new ConflictError("This trajectory is finished; start a new one with `trajectory()`");
  }
}

function checkedItem(item: MessageOrChoice): MessageOrChoice {
  const role: unknown = typeof item === "object" && item !== null ? (isChoice(item) ? item.message.role : item.role) : undefined;
  if (typeof role === "string") return item;
  throw new ArgumentError('Expected a message such as `{ role: "user", content: "…" }` or a choice with a `message`', {
    param: "messages",
  });
}

function toRequest(
  policy: Policy,
  messages: RequestMessage[],
  tools: readonly Tool[],
  options: Omit<SampleOptions, "signal" | "tools">,
): ChatCompletionRequest {
  const { temperature, topP, topK, maxCompletionTokens, seed, stop, toolChoice } = options;
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
    ...(seed === undefined ? {} : { seed }),
    ...(stop === undefined ? {} : { stop: typeof stop === "string" ? stop : [...stop] }),
    ...(tools.length === 0 ? {} : { tools: [...tools] }),
    ...(toolChoice === undefined ? {} : { tool_choice: toolChoice }),
  };
}

function toChoice(completion: ChatCompletion, policy: Policy, request: ChatCompletionRequest): AssistantChoice {
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
