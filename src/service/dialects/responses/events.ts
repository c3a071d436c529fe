/** Events of a streamed response. */
import type { ChatCompletionChunk, ErrorBody, LogprobEntry, ResponsesAnswer, ResponsesItem, Usage } from "../../../schema/index.ts";
import { calledName, isGiven, type Members } from "../../../dialects/index.ts";
import type { EventShaper, ServerEvent } from "../dialect.ts";
import { tokenMembers } from "../translate.ts";
import {
  callItem,
  echoedMembers,
  itemId,
  messageItem,
  reasoningItem,
  responsesUsage,
  shownLogprobs,
  statusOf,
  textPart,
  type ResponseHead,
} from "./answer.ts";

type ChunkChoice = ChatCompletionChunk["choices"][number];
type CallDelta = NonNullable<ChunkChoice["delta"]["tool_calls"]>[number];

/** Open item of a stream. */
interface OpenItem {
  readonly type: "reasoning" | "message" | "function_call";
  /** Index of the function call in the completion, its identifier and name. */
  readonly call?: { readonly index: number; readonly id: string; readonly name: string } | undefined;
  text: string;
}

/** Converter of chat completion chunks to the events of a response. */
export class ResponseEvents implements EventShaper {
  readonly #head: ResponseHead;
  readonly #onEnd: (response: ResponsesAnswer) => Promise<void>;
  #sequence = 0;
  #start: ChatCompletionChunk | null = null;
  readonly #output: ResponsesItem[] = [];
  #item: OpenItem | null = null;
  #last: ChunkChoice | null = null;
  #usage: Usage | null | undefined = null;
  #promptIds: readonly number[] | null | undefined = null;
  readonly #ids: number[] = [];
  readonly #logprobs: LogprobEntry[] = [];

  /** @param onEnd - Called with the finished response before its last event. */
  constructor(head: ResponseHead, onEnd: (response: ResponsesAnswer) => Promise<void>) {
    this.#head = head;
    this.#onEnd = onEnd;
  }

  #event(type: string, members: Members): ServerEvent {
    return { name: type, data: { type, sequence_number: this.#sequence++, ...members } };
  }

  #response(
    end: Pick<ResponsesAnswer, "status" | "incomplete_details">,
    usage: ResponsesAnswer["usage"],
    more: Members = {},
  ): ResponsesAnswer {
    const head = { id: this.#head.id, object: "response" as const, created_at: this.#start?.created ?? 0 };
    return {
      ...head,
      ...end,
      model: this.#start?.model ?? "",
      output: [...this.#output],
      ...echoedMembers(this.#head),
      usage,
      ...more,
    };
  }

  push(chunk: ChatCompletionChunk): readonly ServerEvent[] {
    const events: ServerEvent[] = [];
    if (this.#start === null) {
      this.#start = chunk;
      const response = this.#response({ status: "in_progress", incomplete_details: null }, null);
      events.push(this.#event("response.created", { response }), this.#event("response.in_progress", { response }));
    }
    this.#usage = chunk.usage ?? this.#usage;
    this.#promptIds ??= chunk.prompt_token_ids;
    for (const choice of chunk.choices) events.push(...this.#choice(choice));
    return events;
  }

  #choice(choice: ChunkChoice): ServerEvent[] {
    const entries = choice.logprobs?.content ?? [];
    this.#ids.push(...(choice.token_ids ?? []));
    this.#logprobs.push(...entries);
    if (isGiven(choice.finish_reason)) this.#last = choice;
    const { content, reasoning, tool_calls: calls } = choice.delta;
    const events: ServerEvent[] = [];
    if (reasoning) events.push(...this.#open("reasoning"), ...this.#append("response.reasoning_text.delta", reasoning));
    if (content) {
      const logprobs = shownLogprobs(this.#head.request, entries);
      events.push(...this.#open("message"), ...this.#append("response.output_text.delta", content, { logprobs }));
    }
    for (const call of calls ?? []) events.push(...this.#call(call));
    return events;
  }

  #at(): { readonly item_id: string; readonly output_index: number } {
    const index = this.#output.length;
    return { item_id: itemId(this.#head, this.#item!.type, index), output_index: index };
  }

  /** Opens an item, unless one of the type is open. */
  #open(type: "reasoning" | "message"): ServerEvent[] {
    if (this.#item?.type === type) return [];
    const closed = this.#close("completed");
    this.#item = { type, text: "" };
    const index = this.#output.length;
    const { item_id, output_index } = this.#at();
    const item =
      type === "message"
        ? messageItem(this.#head, index, [], "in_progress")
        : { ...reasoningItem(this.#head, index, ""), content: [], summary: [], status: "in_progress" };
    return [
      ...closed,
      this.#event("response.output_item.added", { output_index, item }),
      this.#event("response.content_part.added", { item_id, output_index, content_index: 0, part: this.#part() }),
    ];
  }

  /** Returns the content part of the open item. */
  #part(): Members {
    const { type, text } = this.#item!;
    if (type === "reasoning") return { type: "reasoning_text", text };
    return textPart(text, text === "" ? [] : shownLogprobs(this.#head.request, this.#logprobs));
  }

  #append(type: string, delta: string, more: Members = {}): ServerEvent[] {
    this.#item!.text += delta;
    return [this.#event(type, { ...this.#at(), content_index: 0, delta, ...more })];
  }

  #call({ index, id, function: called }: CallDelta): ServerEvent[] {
    const events: ServerEvent[] = [];
    if (this.#item?.call?.index !== index) {
      events.push(...this.#close("completed"));
      const call = { index, id: id ?? "", name: called?.name ?? "" };
      this.#item = { type: "function_call", call, text: "" };
      const item = callItem(this.#head, this.#output.length, { ...call, text: "" }, "in_progress");
      events.push(this.#event("response.output_item.added", { output_index: this.#output.length, item }));
    }
    const delta = called?.arguments ?? "";
    if (delta === "") return events;
    this.#item!.text += delta;
    return [...events, this.#event("response.function_call_arguments.delta", { ...this.#at(), delta })];
  }

  /** Closes the open item. */
  #close(status: string): ServerEvent[] {
    if (this.#item === null) return [];
    const { type, call, text } = this.#item;
    const index = this.#output.length;
    const at = this.#at();
    const events: ServerEvent[] = [];
    let item: ResponsesItem;
    if (call !== undefined) {
      item = callItem(this.#head, index, { ...call, text }, status);
      events.push(
        this.#event("response.function_call_arguments.done", { ...at, ...calledName(this.#head.request, call.name), arguments: text }),
      );
    } else {
      const part = this.#part();
      item = type === "message" ? messageItem(this.#head, index, [part], status) : reasoningItem(this.#head, index, text);
      const done = type === "message" ? "response.output_text.done" : "response.reasoning_text.done";
      const logprobs = type === "message" ? { logprobs: part["logprobs"] } : {};
      events.push(this.#event(done, { ...at, content_index: 0, text, ...logprobs }));
      events.push(this.#event("response.content_part.done", { ...at, content_index: 0, part }));
    }
    this.#item = null;
    this.#output.push(item);
    return [...events, this.#event("response.output_item.done", { output_index: index, item })];
  }

  async end(): Promise<readonly ServerEvent[]> {
    const end = statusOf(this.#last?.finish_reason);
    // A turn without text is an empty message, so that clients send it back.
    const opened = this.#output.length === 0 && this.#item === null ? this.#open("message") : [];
    const events = [...opened, ...this.#close(end.status)];
    const tokens = tokenMembers({
      promptIds: this.#promptIds,
      ids: isGiven(this.#last?.token_ids) ? this.#ids : null,
      logprobs: this.#logprobs.length > 0 ? this.#logprobs : null,
    });
    const response = this.#response(end, responsesUsage(this.#usage), tokens);
    await this.#onEnd(response);
    return [...events, this.#event(end.status === "completed" ? "response.completed" : "response.incomplete", { response })];
  }

  fail({ error }: ErrorBody): readonly ServerEvent[] {
    const { message, param, error_code: code } = error;
    const response = { ...this.#response({ status: "failed", incomplete_details: null }, null), error: { code, message } };
    return [this.#event("error", { code, message, param }), this.#event("response.failed", { response })];
  }
}
