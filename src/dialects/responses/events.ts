/**
 * Events of a streamed response: `response.created`, per output item and content part the events of their begin, deltas and end, and at last
 * the whole response. Each event has a sequence number.
 */
import type { ChatCompletionChunk, ErrorBody, ResponsesAnswer, ResponsesItem } from "../../base/schema/index.ts";
import { given, type Members } from "../members.ts";
import { calledName } from "./tools.ts";
import type { EventShaper, ServerEvent } from "../answer-builder.ts";
import { StreamedTokens, type ChunkChoice } from "../answer-parts.ts";
import {
  callItem,
  echoedMembers,
  responseError,
  itemId,
  messageItem,
  reasoningItem,
  responsesUsage,
  shownLogprobs,
  responseStatus,
  outputTextPart,
  type ResponsesHead,
} from "./answer.ts";

type CallDelta = NonNullable<ChunkChoice["delta"]["tool_calls"]>[number];

/** Members that identify the open item in its events. */
interface ItemPlace {
  readonly item_id: string;
  readonly output_index: number;
}

/** Function call of an open item. */
interface OpenCall {
  /** Index of the call in the chat completion. */
  readonly index: number;
  readonly id: string;
  readonly name: string;
}

/** Output item of a stream that more text may follow. */
interface OpenItem {
  readonly type: "reasoning" | "message" | "function_call";
  readonly place: ItemPlace;
  /** Call of an item of the type `function_call`. */
  readonly call?: OpenCall | undefined;
  /** Text, reasoning or arguments so far. */
  text: string;
}

/** Converter of the chunks of one chat completion with one choice to the events of a response. */
export class ResponseEvents implements EventShaper {
  readonly #head: ResponsesHead;
  readonly #onEnd: (response: ResponsesAnswer) => Promise<void>;
  /** Events that the running call of a method returns. */
  #events: ServerEvent[] = [];
  /** Sequence number of the next event. */
  #sequence = 0;
  #firstChunk: ChatCompletionChunk | null = null;
  /** Closed items. The open item has the next index. */
  readonly #output: ResponsesItem[] = [];
  /** Item that the next piece of output may continue. */
  #openItem: OpenItem | null = null;
  readonly #tokens = new StreamedTokens();

  /** @param onEnd - Called with the finished response before its last event. */
  constructor(head: ResponsesHead, onEnd: (response: ResponsesAnswer) => Promise<void>) {
    this.#head = head;
    this.#onEnd = onEnd;
  }

  #add(type: string, members: Members): void {
    this.#events.push({ name: type, data: { type, sequence_number: this.#sequence++, ...members } });
  }

  #takeEvents(): readonly ServerEvent[] {
    const events = this.#events;
    this.#events = [];
    return events;
  }

  /** Returns the response with the items that are closed. */
  #response(
    status: Pick<ResponsesAnswer, "status" | "incomplete_details">,
    usage: ResponsesAnswer["usage"],
    tokens: Members = {},
  ): ResponsesAnswer {
    return {
      id: this.#head.id,
      object: "response",
      created_at: this.#firstChunk?.created ?? 0,
      ...status,
      model: this.#firstChunk?.model ?? "",
      output: [...this.#output],
      ...echoedMembers(this.#head),
      error: null,
      usage,
      ...tokens,
    };
  }

  push(chunk: ChatCompletionChunk): readonly ServerEvent[] {
    if (this.#firstChunk === null) {
      this.#firstChunk = chunk;
      const response = this.#response({ status: "in_progress", incomplete_details: null }, null);
      this.#add("response.created", { response });
      this.#add("response.in_progress", { response });
    }
    this.#tokens.add(chunk);
    for (const choice of chunk.choices) this.#append(choice);
    return this.#takeEvents();
  }

  /** Adds the events of a piece of the choice. */
  #append({ delta, logprobs: pieceLogprobs }: ChunkChoice): void {
    const { content, reasoning, tool_calls: calls } = delta;
    // The events of text and reasoning name their members, because an object from a spread takes several times as long to create and serialize.
    if (reasoning) {
      const item = this.#ensureOpen("reasoning");
      const { item_id, output_index } = item.place;
      this.#add("response.reasoning_text.delta", { item_id, output_index, content_index: 0, delta: reasoning });
      item.text += reasoning;
    }
    if (content) {
      const item = this.#ensureOpen("message");
      const { item_id, output_index } = item.place;
      const logprobs = shownLogprobs(this.#head.request, pieceLogprobs?.content);
      this.#add("response.output_text.delta", { item_id, output_index, content_index: 0, delta: content, logprobs });
      item.text += content;
    }
    for (const call of calls ?? []) this.#appendCall(call);
  }

  /** Closes the open item and begins the next one. The caller adds the events of the begin. */
  #begin(type: OpenItem["type"], call?: OpenCall): OpenItem {
    this.#close("completed");
    const index = this.#output.length;
    const place = { item_id: itemId(this.#head, type, index), output_index: index };
    const begun: OpenItem = { type, place, call, text: "" };
    this.#openItem = begun;
    return begun;
  }

  /** Returns the open item if it has this type; otherwise closes it and opens a new one. */
  #ensureOpen(type: "reasoning" | "message"): OpenItem {
    if (this.#openItem?.type === type) return this.#openItem;
    const open = this.#begin(type);
    const { output_index } = open.place;
    const item =
      type === "message"
        ? messageItem(this.#head, output_index, [], "in_progress")
        : { ...reasoningItem(this.#head, output_index, ""), content: [], summary: [], status: "in_progress" };
    this.#add("response.output_item.added", { output_index, item });
    this.#add("response.content_part.added", { ...open.place, content_index: 0, part: this.#part(open) });
    return open;
  }

  /** Returns the content part of an item. As in a response that is not streamed, text has the log-probabilities of the whole turn. */
  #part({ type, text }: OpenItem): Members {
    if (type === "reasoning") return { type: "reasoning_text", text };
    return outputTextPart(text, text === "" ? [] : shownLogprobs(this.#head.request, this.#tokens.logprobs));
  }

  /** Adds the events of a piece of a function call, which its first piece opens. */
  #appendCall({ index, id, function: called }: CallDelta): void {
    let open = this.#openItem;
    if (open?.call?.index !== index) {
      const call = { index, id: id ?? "", name: called?.name ?? "" };
      open = this.#begin("function_call", call);
      const { output_index } = open.place;
      const item = callItem(this.#head, output_index, { ...call, text: "" }, "in_progress");
      this.#add("response.output_item.added", { output_index, item });
    }
    const delta = called?.arguments ?? "";
    if (delta === "") return;
    open.text += delta;
    this.#add("response.function_call_arguments.delta", { ...open.place, delta });
  }

  /** Closes the open item, if there is one. */
  #close(status: string): void {
    const open = this.#openItem;
    if (open === null) return;
    this.#openItem = null;
    const item = open.call === undefined ? this.#endPart(open, status) : this.#endCall(open, open.call, status);
    this.#output.push(item);
    this.#add("response.output_item.done", { output_index: open.place.output_index, item });
  }

  /** Adds the event that ends the arguments of a call, and returns its item. */
  #endCall({ place, text }: OpenItem, call: OpenCall, status: string): ResponsesItem {
    this.#add("response.function_call_arguments.done", { ...place, ...calledName(this.#head.request, call.name), arguments: text });
    return callItem(this.#head, place.output_index, { ...call, text }, status);
  }

  /** Adds the events that end the content part of a message or of reasoning, and returns its item. */
  #endPart(open: OpenItem, status: string): ResponsesItem {
    const { type, place, text } = open;
    const part = this.#part(open);
    const isMessage = type === "message";
    const logprobs = isMessage ? { logprobs: part["logprobs"] } : {};
    const name = isMessage ? "response.output_text.done" : "response.reasoning_text.done";
    this.#add(name, { ...place, content_index: 0, text, ...logprobs });
    this.#add("response.content_part.done", { ...place, content_index: 0, part });
    const { output_index: index } = place;
    return isMessage ? messageItem(this.#head, index, [part], status) : reasoningItem(this.#head, index, text);
  }

  async end(): Promise<readonly ServerEvent[]> {
    const ending = responseStatus(this.#tokens.finalPiece?.finish_reason);
    // A turn without output is an empty message, so that clients have an item to send back.
    if (this.#output.length === 0 && this.#openItem === null) this.#ensureOpen("message");
    this.#close(ending.status);
    const response = this.#response(ending, responsesUsage(this.#tokens.usage), this.#tokens.members());
    await this.#onEnd(response);
    this.#add(ending.status === "completed" ? "response.completed" : "response.incomplete", { response });
    return this.#takeEvents();
  }

  fail({ error }: ErrorBody): readonly ServerEvent[] {
    const { message, param, error_code: code, failed_generation } = error;
    const response = { ...this.#response({ status: "failed", incomplete_details: null }, null), error: responseError(error) };
    this.#add("error", { code, message, param, ...given({ failed_generation }) });
    this.#add("response.failed", { response });
    return this.#takeEvents();
  }
}
