/** Builder of one conversation of a rollout: the part of a trajectory builder that samples and appends. */

import type { MessageOrChoice, RequestMessage, Tool } from "../schema/index.ts";
import type { RecordedConversation } from "./conversation.ts";
import { deepFreeze } from "./freeze.ts";
import { textOf, toMessages } from "./messages.ts";
import type { Policy } from "./policy.ts";
import { toChoice, toRequest, type SampledTurn, type SampleOptions } from "./sample.ts";

/** Tool calls of a turn without any, shared by all of them. */
const NO_CALLS = Object.freeze([]);

/** Initial messages and tools of the conversation that {@link HistoryBuilder.history} starts. */
export interface HistoryOptions {
  /** Initial messages of the conversation, oldest first; copied. */
  readonly messages: readonly RequestMessage[];
  /** Tools offered to the model at every turn. @default none */
  readonly tools?: readonly Tool[] | undefined;
}

/**
 * Builder of one conversation of a rollout: the main one (`trajectory()`) or an additional one (`history()`). A conversation samples one
 * turn at a time, and nothing else may be appended meanwhile. Different conversations of a rollout may be sampled concurrently.
 *
 * @example
 * ```ts
 * import { trajectory } from "whetstone";
 *
 * const t = trajectory({ messages: [{ role: "user", content: "What is 17 * 3?" }] });
 * const { text } = await t.sample(policy, { temperature: 1, maxCompletionTokens: 64 });
 * t.add({ role: "user", content: "Are you sure?" }).log(`first answer: ${text}`);
 * const words = await t.track("counting", () => t.messages().flatMap(({ content }) => String(content).split(" ")).length);
 * t.compact([{ role: "user", content: `${words} words so far. What is 17 * 3?` }]);
 * ```
 */
export class HistoryBuilder {
  /** Metrics of the whole rollout, shared by all its conversations; `finish` adds `duration` (seconds). */
  readonly metrics: Record<string, number | boolean>;
  /** Tools offered to the model at every turn. */
  readonly tools: readonly Tool[];
  readonly #conversation: RecordedConversation;

  /** @internal */
  protected constructor(conversation: RecordedConversation) {
    this.#conversation = conversation;
    this.tools = conversation.tools;
    this.metrics = conversation.state.metrics;
  }

  /**
   * Samples one turn and appends it with its token ids, log-probabilities and policy version. Appends nothing on failure.
   *
   * @param policy - Policy to sample from.
   * @param options - Sampling settings; `tools` replaces the conversation's tools for this turn.
   * @returns The sampled turn.
   * @throws ConflictError `E_CONFLICT` when the trajectory is finished or another turn of this conversation is being sampled.
   * @throws the signal's reason, or any error of the policy.
   */
  async sample(policy: Policy, { signal, tools = this.tools, ...options }: SampleOptions = {}): Promise<SampledTurn> {
    const choice = await this.#conversation.sampleTurn(
      async () => {
        signal?.throwIfAborted();
        const { turnPosition } = this.#conversation;
        const request = toRequest(policy, { ...options, messages: this.messages(), tools, turnPosition });
        return toChoice(await policy.complete(request, { signal }), policy, request);
      },
      { isHandedOver: policy.handsOver === true },
    );
    return {
      text: textOf(choice),
      // Frozen because the messages of the next request, which callers can read, share these objects.
      toolCalls: choice.message.tool_calls?.length ? deepFreeze(choice.message.tool_calls) : NO_CALLS,
      finishReason: choice.finish_reason ?? null,
      // Frozen on first access: a choice has thousands of small objects, which most rollouts never read.
      get choice() {
        return deepFreeze(choice);
      },
    };
  }

  /**
   * Appends context (a tool result, a user turn), or a choice sampled elsewhere.
   *
   * @param item - Message or choice; copied.
   * @returns This builder.
   * @throws ArgumentError `E_ARGUMENT` for any other value.
   * @throws ConflictError `E_CONFLICT` while a turn is being sampled or when the trajectory is finished.
   */
  add(item: MessageOrChoice): this {
    this.#conversation.add(item);
    return this;
  }

  /**
   * Starts an additional conversation, e.g. for a sub-agent. Its turns are trained with the trajectory's reward and are stored in
   * `additionalHistories`.
   *
   * @param options - Initial messages and tools.
   * @returns Builder of the new conversation.
   * @throws ArgumentError `E_ARGUMENT` for invalid messages or a choice among them.
   * @throws ConflictError `E_CONFLICT` when the trajectory is finished.
   * @example
   * ```ts
   * import { trajectory } from "whetstone";
   *
   * const t = trajectory({ messages: [{ role: "user", content: "What do the three reviews agree on?" }] });
   * const reader = t.history({ messages: [{ role: "user", content: "Sum up: …" }] });
   * await reader.sample(policy, { temperature: 1 });
   * t.add({ role: "user", content: `Summary: ${reader.lastText}` });
   * ```
   */
  history({ messages, tools = [] }: HistoryOptions): HistoryBuilder {
    return new HistoryBuilder(this.#conversation.branch(messages, tools));
  }

  /**
   * Replaces the conversation's messages, e.g. by a summary. The previous messages become an additional history, and their turns are
   * trained as they were sampled. Tools stay the same.
   *
   * @param messages - New messages.
   * @returns This builder.
   * @throws ArgumentError `E_ARGUMENT` for invalid messages or a choice among them.
   * @throws ConflictError `E_CONFLICT` while a turn is being sampled or when the trajectory is finished.
   */
  compact(messages: readonly RequestMessage[]): this {
    this.#conversation.compact(messages);
    return this;
  }

  /** Text of the last item; `""` without items. */
  get lastText(): string {
    const last = this.#conversation.items.at(-1);
    return last === undefined ? "" : textOf(last);
  }

  /**
   * Returns the conversation so far as a new array of frozen plain messages.
   *
   * @returns the messages, choices as assistant messages, oldest first.
   */
  messages(): RequestMessage[] {
    return toMessages(this.#conversation.items);
  }

  /**
   * Runs `run` and adds its duration in seconds to the metric `{name}_duration`, also if it throws.
   *
   * @param name - Metric name without `_duration`.
   * @param run - Function to time.
   * @returns The result of `run`.
   */
  async track<T>(name: string, run: () => T | Promise<T>): Promise<T> {
    const startedAtMs = performance.now();
    try {
      return await run();
    } finally {
      const key = `${name}_duration`;
      this.metrics[key] = Number(this.metrics[key] ?? 0) + (performance.now() - startedAtMs) / 1000;
    }
  }

  /**
   * Appends a line to the trajectory's log.
   *
   * @param line - Text of any length.
   * @returns This builder.
   * @throws ConflictError `E_CONFLICT` when the trajectory is finished.
   */
  log(line: string): this {
    this.#conversation.state.mustBeOpen();
    this.#conversation.state.logs.push(line);
    return this;
  }
}
