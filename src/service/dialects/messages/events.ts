/** Events of a streamed message. */
import type { ChatCompletionChunk, ErrorBody, LogprobEntry, Usage } from "../../../schema/index.ts";
import { isGiven, type Members } from "../../../dialects/index.ts";
import type { EventShaper, ServerEvent } from "../dialect.ts";
import { tokenMembers } from "../translate.ts";
import { endOf, messageId, messagesUsageOf, signatureOf } from "./answer.ts";
import { toMessagesError } from "./errors.ts";

type ChunkChoice = ChatCompletionChunk["choices"][number];
type CallDelta = NonNullable<ChunkChoice["delta"]["tool_calls"]>[number];

/** Event that keeps a connection open. */
export const PING: ServerEvent = { name: "ping", data: { type: "ping" } };

function event(type: string, members: Members): ServerEvent {
  return { name: type, data: { type, ...members } };
}

/** Open content block of a stream. */
interface OpenBlock {
  readonly kind: "thinking" | "text" | "tool_use";
  /** Index of the tool call. @default not a call */
  readonly call?: number | undefined;
  text: string;
}

/** Converter of chat completion chunks to the events of a message. */
export class MessageEvents implements EventShaper {
  #block: OpenBlock | null = null;
  /** Number of blocks begun. */
  #count = 0;
  #hasStarted = false;
  #hasCalls = false;
  #last: ChunkChoice | null = null;
  #usage: Usage | null | undefined = null;
  #promptIds: readonly number[] | null | undefined = null;
  readonly #ids: number[] = [];
  readonly #logprobs: LogprobEntry[] = [];

  push(chunk: ChatCompletionChunk): readonly ServerEvent[] {
    this.#usage = chunk.usage ?? this.#usage;
    this.#promptIds ??= chunk.prompt_token_ids;
    const events = this.#hasStarted ? [] : this.#start(chunk);
    for (const choice of chunk.choices) {
      this.#ids.push(...(choice.token_ids ?? []));
      this.#logprobs.push(...(choice.logprobs?.content ?? []));
      if (isGiven(choice.finish_reason)) this.#last = choice;
      const { content, reasoning, tool_calls: calls } = choice.delta;
      if (reasoning) events.push(...this.#append("thinking", reasoning));
      if (content) events.push(...this.#append("text", content));
      for (const call of calls ?? []) events.push(...this.#call(call));
    }
    return events;
  }

  #start({ id, model }: ChatCompletionChunk): ServerEvent[] {
    this.#hasStarted = true;
    const usage = messagesUsageOf(this.#usage);
    const head = {
      id: messageId(id),
      type: "message",
      role: "assistant",
      model,
      content: [],
      stop_reason: null,
      stop_sequence: null,
      usage,
    };
    return [event("message_start", { message: head }), PING];
  }

  #open(kind: OpenBlock["kind"], block: Members, call?: number): ServerEvent[] {
    const events = this.#close();
    this.#block = { kind, call, text: "" };
    return [...events, event("content_block_start", { index: this.#count++, content_block: { type: kind, ...block } })];
  }

  #close(): ServerEvent[] {
    const block = this.#block;
    if (block === null) return [];
    this.#block = null;
    const signature = block.kind === "thinking" ? [this.#delta("signature_delta", { signature: signatureOf(block.text) })] : [];
    return [...signature, event("content_block_stop", { index: this.#count - 1 })];
  }

  #delta(type: string, members: Members): ServerEvent {
    return event("content_block_delta", { index: this.#count - 1, delta: { type, ...members } });
  }

  #append(kind: "thinking" | "text", text: string): ServerEvent[] {
    const empty = kind === "text" ? { text: "" } : { thinking: "", signature: "" };
    const opened = this.#block?.kind === kind ? [] : this.#open(kind, empty);
    this.#block!.text += text;
    return [...opened, this.#delta(`${kind}_delta`, { [kind]: text })];
  }

  #call({ index, id, function: called }: CallDelta): ServerEvent[] {
    this.#hasCalls = true;
    const isOpen = this.#block?.kind === "tool_use" && this.#block.call === index;
    const opened = isOpen ? [] : this.#open("tool_use", { id: id ?? "", name: called?.name ?? "", input: {} }, index);
    const text = called?.arguments ?? "";
    return text === "" ? opened : [...opened, this.#delta("input_json_delta", { partial_json: text })];
  }

  end(): readonly ServerEvent[] {
    const tokens = tokenMembers({
      promptIds: this.#promptIds,
      ids: isGiven(this.#last?.token_ids) ? this.#ids : null,
      logprobs: this.#logprobs.length > 0 ? this.#logprobs : null,
    });
    const end = endOf(this.#last ?? {}, this.#hasCalls);
    return [
      ...this.#close(),
      event("message_delta", { delta: end, usage: messagesUsageOf(this.#usage), ...tokens }),
      event("message_stop", {}),
    ];
  }

  fail(error: ErrorBody): readonly ServerEvent[] {
    return [{ name: "error", data: toMessagesError(error) }];
  }
}
