/** Events of a streamed message. */
import type { ChatCompletionChunk, ErrorBody, LogprobEntry, Usage } from "../../base/schema/index.ts";
import { isGiven, type Members } from "../members.ts";
import type { EventShaper, ServerEvent } from "../answer-builder.ts";
import { tokenMembers } from "../answer-parts.ts";
import { stopReasonOf, messageId, messagesUsageOf, signatureOf } from "./answer.ts";
import { toMessagesError } from "./errors.ts";

type ChunkChoice = ChatCompletionChunk["choices"][number];
type CallDelta = NonNullable<ChunkChoice["delta"]["tool_calls"]>[number];

/** Event that keeps a connection open. */
export const PING: ServerEvent = { name: "ping", data: { type: "ping" } };

/** Open content block of a stream. */
interface OpenBlock {
  readonly kind: "thinking" | "text" | "tool_use";
  /** Index of the tool call. @default not a call */
  readonly call?: number | undefined;
  text: string;
}

/** Converter of chat completion chunks to the events of a message. */
export class MessageEvents implements EventShaper {
  /** Events since the last call. */
  #events: ServerEvent[] = [];
  /** Block that the next piece may continue. */
  #block: OpenBlock | null = null;
  /** Number of blocks begun. */
  #count = 0;
  #hasStarted = false;
  #hasCalls = false;
  /** Last piece of the choice, with its finish reason. */
  #last: ChunkChoice | null = null;
  #usage: Usage | null | undefined = null;
  #promptIds: readonly number[] | null | undefined = null;
  readonly #ids: number[] = [];
  readonly #logprobs: LogprobEntry[] = [];
  readonly #omitsThinking: boolean;

  /** @param omitsThinking - Whether thinking blocks have a signature and no text. */
  constructor(omitsThinking: boolean) {
    this.#omitsThinking = omitsThinking;
  }

  #add(type: string, members: Members): void {
    this.#events.push({ name: type, data: { type, ...members } });
  }

  #takeEvents(): readonly ServerEvent[] {
    const events = this.#events;
    this.#events = [];
    return events;
  }

  push(chunk: ChatCompletionChunk): readonly ServerEvent[] {
    this.#usage = chunk.usage ?? this.#usage;
    this.#promptIds ??= chunk.prompt_token_ids;
    if (!this.#hasStarted) this.#start(chunk);
    for (const choice of chunk.choices) {
      this.#ids.push(...(choice.token_ids ?? []));
      this.#logprobs.push(...(choice.logprobs?.content ?? []));
      if (isGiven(choice.finish_reason)) this.#last = choice;
      const { content, reasoning, tool_calls: calls } = choice.delta;
      if (reasoning) this.#append("thinking", reasoning);
      if (content) this.#append("text", content);
      for (const call of calls ?? []) this.#call(call);
    }
    return this.#takeEvents();
  }

  /** Adds the event that begins the message, and a ping. */
  #start({ id, model }: ChatCompletionChunk): void {
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
    this.#add("message_start", { message: head });
    this.#events.push(PING);
  }

  #open(kind: OpenBlock["kind"], block: Members, call?: number): OpenBlock {
    this.#close();
    const open = (this.#block = { kind, call, text: "" });
    this.#add("content_block_start", { index: this.#count++, content_block: { type: kind, ...block } });
    return open;
  }

  #close(): void {
    const block = this.#block;
    if (block === null) return;
    this.#block = null;
    if (block.kind === "thinking") this.#delta({ type: "signature_delta", signature: signatureOf(block.text, this.#omitsThinking) });
    this.#add("content_block_stop", { index: this.#count - 1 });
  }

  #delta(delta: Members): void {
    this.#add("content_block_delta", { index: this.#count - 1, delta });
  }

  /** Adds text to the open block, or to a new block if the open one has another kind. */
  #append(kind: "thinking" | "text", text: string): void {
    const block =
      this.#block?.kind === kind ? this.#block : this.#open(kind, kind === "text" ? { text: "" } : { thinking: "", signature: "" });
    block.text += text;
    if (kind === "text") this.#delta({ type: "text_delta", text });
    else if (!this.#omitsThinking) this.#delta({ type: "thinking_delta", thinking: text });
  }

  /** Adds a piece of a tool call to its block. */
  #call({ index, id, function: called }: CallDelta): void {
    this.#hasCalls = true;
    if (this.#block?.kind !== "tool_use" || this.#block.call !== index)
      this.#open("tool_use", { id: id ?? "", name: called?.name ?? "", input: {} }, index);
    const text = called?.arguments ?? "";
    if (text !== "") this.#delta({ type: "input_json_delta", partial_json: text });
  }

  end(): readonly ServerEvent[] {
    const tokens = tokenMembers({
      promptIds: this.#promptIds,
      ids: isGiven(this.#last?.token_ids) ? this.#ids : null,
      logprobs: this.#logprobs.length > 0 ? this.#logprobs : null,
    });
    const end = stopReasonOf(this.#last ?? {}, this.#hasCalls);
    this.#close();
    this.#add("message_delta", { delta: end, usage: messagesUsageOf(this.#usage), ...tokens });
    this.#add("message_stop", {});
    return this.#takeEvents();
  }

  fail(error: ErrorBody): readonly ServerEvent[] {
    return [{ name: "error", data: toMessagesError(error) }];
  }
}
