/** Events of a streamed response. */
import type { ChatCompletionChunk, ErrorBody, LogprobEntry, ResponsesAnswer, ResponsesItem, Usage } from "../../base/schema/index.ts";
import { given, isGiven, type Members } from "../members.ts";
import { calledName } from "./tools.ts";
import type { EventShaper, ServerEvent } from "../answer-builder.ts";
import { tokenMembers } from "../answer-parts.ts";
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

type ChunkChoice = ChatCompletionChunk["choices"][number];
type CallDelta = NonNullable<ChunkChoice["delta"]["tool_calls"]>[number];

/** Identity of the open item in its events. */
interface ItemPlace {
  readonly item_id: string;
  readonly output_index: number;
}

/** Open item of a stream. */
interface OpenItem {
  readonly type: "reasoning" | "message" | "function_call";
  readonly place: ItemPlace;
  /** Index of the function call in the completion, its identifier and name. */
  readonly call?: { readonly index: number; readonly id: string; readonly name: string } | undefined;
  text: string;
}

/** Converter of chat completion chunks to the events of a response. */
export class ResponseEvents implements EventShaper {
  readonly #head: ResponsesHead;
  readonly #onEnd: (response: ResponsesAnswer) => Promise<void>;
  /** Events since the last call. */
  #events: ServerEvent[] = [];
  /** Number of the next event. */
  #sequence = 0;
  #firstChunk: ChatCompletionChunk | null = null;
  /** Closed items. */
  readonly #output: ResponsesItem[] = [];
  /** Item that the next piece may continue. */
  #item: OpenItem | null = null;
  /** Last piece of the choice, with its finish reason. */
  #last: ChunkChoice | null = null;
  #usage: Usage | null | undefined = null;
  #promptIds: readonly number[] | null | undefined = null;
  readonly #ids: number[] = [];
  readonly #logprobs: LogprobEntry[] = [];

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

  #response(
    end: Pick<ResponsesAnswer, "status" | "incomplete_details">,
    usage: ResponsesAnswer["usage"],
    more: Members = {},
  ): ResponsesAnswer {
    const head = { id: this.#head.id, object: "response" as const, created_at: this.#firstChunk?.created ?? 0 };
    return {
      ...head,
      ...end,
      model: this.#firstChunk?.model ?? "",
      output: [...this.#output],
      ...echoedMembers(this.#head),
      usage,
      ...more,
    };
  }

  push(chunk: ChatCompletionChunk): readonly ServerEvent[] {
    if (this.#firstChunk === null) {
      this.#firstChunk = chunk;
      const response = this.#response({ status: "in_progress", incomplete_details: null }, null);
      this.#add("response.created", { response });
      this.#add("response.in_progress", { response });
    }
    this.#usage = chunk.usage ?? this.#usage;
    this.#promptIds ??= chunk.prompt_token_ids;
    for (const choice of chunk.choices) this.#choice(choice);
    return this.#takeEvents();
  }

  /** Adds the events of a choice's new output. */
  #choice(choice: ChunkChoice): void {
    const entries = choice.logprobs?.content ?? [];
    this.#ids.push(...(choice.token_ids ?? []));
    this.#logprobs.push(...entries);
    if (isGiven(choice.finish_reason)) this.#last = choice;
    const { content, reasoning, tool_calls: calls } = choice.delta;
    if (reasoning) {
      const item = this.#ensureOpen("reasoning");
      const { item_id, output_index } = item.place;
      this.#add("response.reasoning_text.delta", { item_id, output_index, content_index: 0, delta: reasoning });
      item.text += reasoning;
    }
    if (content) {
      // Named members, because an object from a spread takes several times as long to create and serialize.
      const item = this.#ensureOpen("message");
      const { item_id, output_index } = item.place;
      const logprobs = shownLogprobs(this.#head.request, entries);
      this.#add("response.output_text.delta", { item_id, output_index, content_index: 0, delta: content, logprobs });
      item.text += content;
    }
    for (const call of calls ?? []) this.#call(call);
  }

  /** Closes the open item and begins the next one, without its events. */
  #begin(type: OpenItem["type"], call?: OpenItem["call"]): OpenItem {
    this.#close("completed");
    const index = this.#output.length;
    return (this.#item = { type, place: { item_id: itemId(this.#head, type, index), output_index: index }, call, text: "" });
  }

  /** Returns the open item if it has this type; otherwise closes it and opens a new one. */
  #ensureOpen(type: "reasoning" | "message"): OpenItem {
    if (this.#item?.type === type) return this.#item;
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
    return outputTextPart(text, text === "" ? [] : shownLogprobs(this.#head.request, this.#logprobs));
  }

  /** Adds the events of a piece of a function call. */
  #call({ index, id, function: called }: CallDelta): void {
    let open = this.#item;
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

  /** Closes the open item. */
  #close(status: string): void {
    if (this.#item === null) return;
    const open = this.#item;
    const { type, call, text, place } = open;
    const { output_index: index } = place;
    let item: ResponsesItem;
    if (call !== undefined) {
      item = callItem(this.#head, index, { ...call, text }, status);
      this.#add("response.function_call_arguments.done", { ...place, ...calledName(this.#head.request, call.name), arguments: text });
    } else {
      const part = this.#part(open);
      item = type === "message" ? messageItem(this.#head, index, [part], status) : reasoningItem(this.#head, index, text);
      const done = type === "message" ? "response.output_text.done" : "response.reasoning_text.done";
      const logprobs = type === "message" ? { logprobs: part["logprobs"] } : {};
      this.#add(done, { ...place, content_index: 0, text, ...logprobs });
      this.#add("response.content_part.done", { ...place, content_index: 0, part });
    }
    this.#item = null;
    this.#output.push(item);
    this.#add("response.output_item.done", { output_index: index, item });
  }

  async end(): Promise<readonly ServerEvent[]> {
    const end = responseStatus(this.#last?.finish_reason);
    // A turn without text is an empty message, so that clients send it back.
    if (this.#output.length === 0 && this.#item === null) this.#ensureOpen("message");
    this.#close(end.status);
    const tokens = tokenMembers({
      promptIds: this.#promptIds,
      ids: isGiven(this.#last?.token_ids) ? this.#ids : null,
      logprobs: this.#logprobs.length > 0 ? this.#logprobs : null,
    });
    const response = this.#response(end, responsesUsage(this.#usage), tokens);
    await this.#onEnd(response);
    this.#add(end.status === "completed" ? "response.completed" : "response.incomplete", { response });
    return this.#takeEvents();
  }

  fail({ error }: ErrorBody): readonly ServerEvent[] {
    const { message, param, error_code: code, failed_generation: text } = error;
    const response = { ...this.#response({ status: "failed", incomplete_details: null }, null), error: responseError(error) };
    this.#add("error", { code, message, param, ...given({ failed_generation: text }) });
    this.#add("response.failed", { response });
    return this.#takeEvents();
  }
}
