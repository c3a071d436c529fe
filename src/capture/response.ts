/** Answers read while the agent reads them. */
import { ConnectionError, ProtocolError } from "../client/index.ts";
import { readChatStream } from "../client/sse.ts";
import { chatCompletion, type ChatCompletion } from "../schema/index.ts";
import { pushIterator, type PushIterator } from "../util/push-iterator.ts";
import { CompletionAssembler } from "./assemble.ts";

/** A response to hand on, and what it says. */
export interface WatchedResponse {
  readonly response: Response;
  /** Rejects when the answer is cut, cancelled or no completion: no half turn. */
  readonly completion: Promise<ChatCompletion>;
}

/** Whether an answer is an event stream. */
export function isEventStream(contentType: string | null): boolean {
  return contentType?.toLowerCase().startsWith("text/event-stream") ?? false;
}

/**
 * A response with the same bytes, and the completion in them.
 *
 * Every piece goes to the agent first and at once. The body is read as fast as it comes, whether or not the agent does, so neither
 * reader can hold up the other; the memory is that of one answer. When the agent cancels, the request is cancelled too.
 *
 * @param n - How many choices were asked for.
 */
export function watchResponse(response: Response, n: number): WatchedResponse {
  const { body } = response;
  if (body === null) return { response, completion: Promise.reject(new ProtocolError("The answer has no body")) };
  const bytes = pushIterator<Uint8Array>(() => {});
  const copy = new Response(passOn(body.getReader(), bytes), response);
  // A response that is made by hand has no address; clients show it in their messages.
  Object.defineProperty(copy, "url", { value: response.url });
  return { response: copy, completion: readCompletion(isEventStream(response.headers.get("content-type")), bytes, n) };
}

function passOn(reader: ReadableStreamDefaultReader<Uint8Array>, bytes: PushIterator<Uint8Array>): ReadableStream<Uint8Array> {
  let isCancelled = false;
  const pump = async (controller: ReadableByteStreamController): Promise<void> => {
    for (;;) {
      const { done, value } = await reader.read();
      if (isCancelled) return;
      if (done) break;
      if (value.byteLength === 0) continue;
      // Enqueuing a piece takes its memory away from here.
      const copy = value.slice();
      controller.enqueue(value);
      bytes.push(copy);
    }
    bytes.end();
    controller.close();
    // A reader that brought its own buffer is only told of the end through it.
    controller.byobRequest?.respond(0);
  };
  return new ReadableStream({
    type: "bytes",
    start(controller) {
      pump(controller).catch((error: unknown) => {
        bytes.fail(new ConnectionError("The answer was cut", { cause: error }));
        if (!isCancelled) controller.error(error);
      });
    },
    async cancel(reason) {
      isCancelled = true;
      bytes.fail(new ConnectionError("The agent stopped reading the answer before its end"));
      await reader.cancel(reason);
    },
  });
}

/**
 * The completion in the bytes of an answer.
 *
 * @throws ConnectionError, HttpError, ProtocolError for an answer that is cut, that fails, or that is no completion. A stream that is
 * cut after each of its choices has ended is whole.
 */
export async function readCompletion(isStream: boolean, bytes: AsyncIterable<Uint8Array>, n: number): Promise<ChatCompletion> {
  if (!isStream) return parseCompletion(await readText(bytes));
  const assembler = new CompletionAssembler();
  try {
    for await (const chunk of readChatStream(bytes)) assembler.push(chunk);
  } catch (error) {
    if (!assembler.isComplete(n)) throw error;
  }
  return assembler.toCompletion();
}

async function readText(bytes: AsyncIterable<Uint8Array>): Promise<string> {
  const decoder = new TextDecoder();
  let text = "";
  for await (const piece of bytes) text += decoder.decode(piece, { stream: true });
  return text + decoder.decode();
}

function parseCompletion(text: string): ChatCompletion {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (cause) {
    throw new ProtocolError("The answer is no JSON", { cause });
  }
  const result = chatCompletion.safeParse(value);
  if (!result.success) throw new ProtocolError("The answer is no chat completion");
  if (result.data.choices.length === 0) throw new ProtocolError("The answer has no choice");
  return result.data;
}
