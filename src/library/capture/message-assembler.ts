/** Assembly of a streamed message of the Messages API. */
import { z } from "zod";
import { ProtocolError } from "../client/index.ts";
import type { AnswerAssembler } from "./answer-assembler.ts";

const jsonObject = z.record(z.string(), z.unknown());
const index = z.int().min(0);

/** Schema of the events that contain parts of the message. Events of other types, such as `ping`, are ignored. */
const messageEvent = z.discriminatedUnion("type", [
  z.object({ type: z.literal("message_start"), message: jsonObject }),
  z.object({ type: z.literal("content_block_start"), index, content_block: jsonObject }),
  z.object({
    type: z.literal("content_block_delta"),
    index,
    delta: z.looseObject({
      text: z.string().optional(),
      thinking: z.string().optional(),
      signature: z.string().optional(),
      partial_json: z.string().optional(),
    }),
  }),
  z.looseObject({ type: z.literal("message_delta"), delta: jsonObject }),
  z.object({ type: z.literal("message_stop") }),
]);
/** Types of {@link messageEvent}. */
const EVENT_TYPES: ReadonlySet<unknown> = new Set(messageEvent.options.flatMap(({ shape }) => [...shape.type.values]));

/** Members of a delta that are appended to the member of the same name in its block. */
const TEXT_MEMBERS = ["text", "thinking", "signature"] as const;

/** Assembler of one message. The `input` of a tool call becomes JSON text, because its deltas are pieces of JSON. */
export class MessageAssembler implements AnswerAssembler {
  /** Members of the message except its content; null until an event has some. */
  #message: Record<string, unknown> | null = null;
  /** Content blocks by the index in their events. */
  readonly #blocks: Record<string, unknown>[] = [];
  #isComplete = false;

  get isComplete(): boolean {
    return this.#isComplete;
  }

  push(value: unknown): void {
    if (!EVENT_TYPES.has((value as { readonly type?: unknown } | null)?.type)) return;
    const { success, data: event, error } = messageEvent.safeParse(value);
    if (!success) throw new ProtocolError(`Expected an event of a message: ${z.prettifyError(error)}`);
    switch (event.type) {
      case "message_start":
        this.#message = { ...event.message };
        return;
      case "content_block_start":
        this.#blocks[event.index] = { ...event.content_block };
        return;
      case "content_block_delta":
        this.#append(event.index, event.delta);
        return;
      case "message_delta": {
        // Further members of the event, such as `usage`, are members of the message, too.
        const { type: _, delta, ...furtherMembers } = event;
        this.#message = { ...this.#message, ...delta, ...furtherMembers };
        this.#isComplete ||= typeof delta["stop_reason"] === "string";
        return;
      }
      case "message_stop":
        this.#isComplete = true;
    }
  }

  /** Appends a delta to the content block at `position`. */
  #append(position: number, delta: { readonly [Name in (typeof TEXT_MEMBERS)[number] | "partial_json"]?: string | undefined }): void {
    const block = this.#blocks[position];
    if (block === undefined) throw new ProtocolError(`Expected the start of content block ${position} before its deltas`);
    const append = (name: string, text: string) => {
      block[name] = (typeof block[name] === "string" ? block[name] : "") + text;
    };
    for (const name of TEXT_MEMBERS) if (delta[name] !== undefined) append(name, delta[name]);
    if (delta.partial_json) append("input", delta.partial_json);
  }

  toAnswer(): unknown {
    return this.#message === null ? null : { ...this.#message, content: this.#blocks };
  }
}
