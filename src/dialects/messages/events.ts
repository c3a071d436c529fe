/**
 * Events of a streamed message: `message_start`, per content block its start, deltas and stop, and at last `message_delta` with the end of
 * the message, and `message_stop`.
 */
import type { ChatCompletionChunk, ErrorBody } from "../../base/schema/index.ts";
import type { Members } from "../members.ts";
import type { EventShaper, ServerEvent } from "../answer-builder.ts";
import { StreamedTokens, type ChunkChoice } from "../answer-parts.ts";
import { stopReasonOf, messageId, messagesUsageOf, signatureOf } from "./answer.ts";
import { toMessagesError } from "./errors.ts";

type CallDelta = NonNullable<ChunkChoice["delta"]["tool_calls"]>[number];

/** Event that keeps a connection open. */
export const PING: ServerEvent = { name: "ping", data: { type: "ping" } };

/** Content block of a stream that more text may follow. */
interface OpenBlock {
  readonly kind: "thinking" | "text" | "tool_use";
  /** Index of the tool call in the chat completion. @default not a call */
  readonly callIndex?: number | undefined;
  /** Text or reasoning so far; empty for a tool call. */
  text: string;
}

/** Converter of the chunks of one chat completion with one choice to the events of a message. */
export class MessageEvents implements EventShaper {
  /** Events that the running call of a method returns. */
  #events: ServerEvent[] = [];
  /** Block that the next piece of output may continue. */
  #openBlock: OpenBlock | null = null;
  /** Number of blocks begun. The open block has the index `#blockCount - 1`. */
  #blockCount = 0;
  #hasStarted = false;
  #hasCalls = false;
  readonly #tokens = new StreamedTokens();
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
    this.#tokens.add(chunk);
    if (!this.#hasStarted) this.#start(chunk);
    for (const { delta } of chunk.choices) {
      const { content, reasoning, tool_calls: calls } = delta;
      if (reasoning) this.#append("thinking", reasoning);
      if (content) this.#append("text", content);
      for (const call of calls ?? []) this.#appendCall(call);
    }
    return this.#takeEvents();
  }

  /** Adds the event that begins the message, and a ping. */
  #start({ id, model }: ChatCompletionChunk): void {
    this.#hasStarted = true;
    const usage = messagesUsageOf(this.#tokens.usage);
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

  /** Closes the open block and begins a new one with the members of its first event. */
  #open(kind: OpenBlock["kind"], members: Members, callIndex?: number): OpenBlock {
    this.#close();
    const block = { kind, callIndex, text: "" };
    this.#add("content_block_start", { index: this.#blockCount, content_block: { type: kind, ...members } });
    this.#openBlock = block;
    this.#blockCount++;
    return block;
  }

  #close(): void {
    const block = this.#openBlock;
    if (block === null) return;
    this.#openBlock = null;
    if (block.kind === "thinking") this.#delta({ type: "signature_delta", signature: signatureOf(block.text, this.#omitsThinking) });
    this.#add("content_block_stop", { index: this.#blockCount - 1 });
  }

  #delta(delta: Members): void {
    this.#add("content_block_delta", { index: this.#blockCount - 1, delta });
  }

  /** Adds text to the open block, or to a new block if the open one has another kind. */
  #append(kind: "thinking" | "text", text: string): void {
    const emptyMembers = kind === "text" ? { text: "" } : { thinking: "", signature: "" };
    const block = this.#openBlock?.kind === kind ? this.#openBlock : this.#open(kind, emptyMembers);
    block.text += text;
    if (kind === "text") this.#delta({ type: "text_delta", text });
    else if (!this.#omitsThinking) this.#delta({ type: "thinking_delta", thinking: text });
  }

  /** Adds a piece of a tool call to its block, which its first piece opens. */
  #appendCall({ index, id, function: called }: CallDelta): void {
    this.#hasCalls = true;
    if (this.#openBlock?.kind !== "tool_use" || this.#openBlock.callIndex !== index)
      this.#open("tool_use", { id: id ?? "", name: called?.name ?? "", input: {} }, index);
    const text = called?.arguments ?? "";
    if (text !== "") this.#delta({ type: "input_json_delta", partial_json: text });
  }

  end(): readonly ServerEvent[] {
    const { finalPiece, usage } = this.#tokens;
    this.#close();
    const stopReason = stopReasonOf(finalPiece ?? {}, this.#hasCalls);
    this.#add("message_delta", { delta: stopReason, usage: messagesUsageOf(usage), ...this.#tokens.members() });
    this.#add("message_stop", {});
    return this.#takeEvents();
  }

  fail(error: ErrorBody): readonly ServerEvent[] {
    return [{ name: "error", data: toMessagesError(error) }];
  }
}
