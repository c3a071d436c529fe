import type { MessageOrChoice, RequestMessage, Tool } from "../schema/index.ts";
import type { Conversation } from "./conversation.ts";
import { deepFreeze } from "./freeze.ts";
import { textOf, toMessages } from "./messages.ts";
import type { Policy } from "./policy.ts";
import { toChoice, toRequest, type SampledTurn, type SampleOptions } from "./sample.ts";

const NO_CALLS = Object.freeze([]);

/** Options of {@link HistoryBuilder.history}. */
export interface HistoryOptions {
  /** The conversation so far. */
  readonly messages: readonly RequestMessage[];
  /** Tools offered at every turn. @default none */
  readonly tools?: readonly Tool[] | undefined;
}

/**
 * One conversation of a rollout under way: the main one (`trajectory()`) or one beside it (`history()`). Every method that appends does
 * so after the one before it has settled; one turn at a time. Conversations beside each other may be sampled at the same time.
 */
export class HistoryBuilder {
  /** Numbers of the whole rollout, shared by all its conversations; `finish` adds `duration` (seconds). */
  readonly metrics: Record<string, number | boolean>;
  readonly tools: readonly Tool[];
  readonly #conversation: Conversation;

  protected constructor(conversation: Conversation) {
    this.#conversation = conversation;
    this.tools = conversation.tools;
    this.metrics = conversation.state.metrics;
  }

  /**
   * Samples one turn and appends it with its token ids, log-probabilities and policy version.
   *
   * @throws ConflictError `E_CONFLICT` when the trajectory is finished or another turn of this conversation is being sampled.
   * @throws whatever the policy throws; then nothing was appended.
   */
  async sample(policy: Policy, { signal, tools = this.tools, ...options }: SampleOptions = {}): Promise<SampledTurn> {
    const choice = await this.#conversation.turn(async () => {
      signal?.throwIfAborted();
      const { place } = this.#conversation;
      const request = toRequest(policy, { ...options, messages: this.messages(), tools, place });
      return toChoice(await policy.complete(request, { signal }), policy, request);
    }, policy.handsOver === true);
    return {
      text: textOf(choice),
      // Also in the messages of the next request, which are handed out.
      toolCalls: choice.message.tool_calls?.length ? deepFreeze(choice.message.tool_calls) : NO_CALLS,
      finishReason: choice.finish_reason ?? null,
      // Thousands of small objects, which most rollouts never look at.
      get choice() {
        return deepFreeze(choice);
      },
    };
  }

  /**
   * Appends context (a tool result, a user turn), or a choice sampled elsewhere.
   *
   * @throws ArgumentError `E_ARGUMENT` for anything else; ConflictError `E_CONFLICT` while a turn is being sampled.
   */
  add(item: MessageOrChoice): this {
    this.#conversation.add(item);
    return this;
  }

  /**
   * Starts a conversation beside this one, for a sub-agent. Its turns are trained with the trajectory's reward and end in
   * `additionalHistories`.
   *
   * @throws ArgumentError `E_ARGUMENT` for messages that are none; ConflictError `E_CONFLICT` when the trajectory is finished.
   * @example
   * ```ts
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
   * Goes on with other messages, such as a summary of the present ones, which become an additional history: their turns are trained as
   * they were sampled. Tools stay.
   *
   * @throws ArgumentError `E_ARGUMENT` for messages that are none or a choice; ConflictError `E_CONFLICT` while a turn is being sampled.
   */
  compact(messages: readonly RequestMessage[]): this {
    this.#conversation.compact(messages);
    return this;
  }

  /** Text of the last item, `""` if there is none. */
  get lastText(): string {
    const last = this.#conversation.items.at(-1);
    return last === undefined ? "" : textOf(last);
  }

  /** The plain conversation so far; a new array of frozen messages. */
  messages(): RequestMessage[] {
    return toMessages(this.#conversation.items);
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
    this.#conversation.state.mustBeOpen();
    this.#conversation.state.logs.push(line);
    return this;
  }
}
