/** Observation of responses while the agent reads them. */
import { ConnectionError, ProtocolError } from "../client/index.ts";
import { readChatStream } from "../client/sse.ts";
import { chatCompletion, type ChatCompletion } from "../schema/index.ts";
import { CompletionAssembler } from "../trajectory/assemble.ts";
import { pushIterator, type PushIterator } from "../util/push-iterator.ts";

/** Response to pass on, and the completion in it. */
export interface WatchedResponse {
  readonly response: Response;
  /**
   * Completion in the response; rejects if the response is truncated, cancelled or not a completion, so that no partial turn is recorded.
   */
  readonly completion: Promise<ChatCompletion>;
}

/** Whether a response is an event stream. */
export function isEventStream(contentType: string | null): boolean {
  return contentType?.toLowerCase().startsWith("text/event-stream") ?? false;
}

/**
 * Returns a response with the same bytes, and the completion in them.
 *
 * Every chunk is passed to the agent first and at once. The body is read as fast as it arrives, whether or not the agent reads it, so
 * neither reader can block the other; memory use is one response. If the agent cancels, the request is cancelled too.
 *
 * @param response - Response of the service; its body is consumed.
 * @param n - Number of requested choices.
 * @returns Response for the agent, and the completion.
 */
export function watchResponse(response: Response, n: number): WatchedResponse {
  const { body } = response;
  if (body === null) return { response, completion: Promise.reject(new ProtocolError("The answer has no body")) };
  const bytes = pushIterator<Uint8Array>(() => {});
  const copy = new Response(passOn(body.getReader(), bytes), response);
  // A constructed response has no URL, which clients show in their messages.
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
      // Copied first, because enqueuing transfers the chunk's buffer.
      const copy = value.slice();
      controller.enqueue(value);
      bytes.push(copy);
    }
    bytes.end();
    controller.close();
    // A BYOB reader learns of the end only through its own buffer.
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
 * Parses the completion from the bytes of a response.
 *
 * @param isStream - Whether the response is an event stream.
 * @param bytes - Body of the response.
 * @param n - Number of requested choices.
 * @returns The completion.
 * @throws ConnectionError, HttpError, ProtocolError for a truncated, failed or invalid response. A stream that is truncated after all its
 *   choices have ended is complete.
 */
export async function readCompletion(isStream: boolean, bytes: AsyncIterable<Uint8Array>, n: number): Promise<ChatCompletion> {
  if (!isStream) return parseCompletion(await readText(bytes));
  const assembler = new CompletionAssembler();
  try {
    for await (const chunk of readChatStream(bytes)) assembler.push(chunk);
  } catch (error) {
    if (!assembler.isComplete(n)) throw error;
  }
  const completion = assembler.toCompletion();
  if (completion === null) throw new ProtocolError("The stream ended without a choice");
  return completion;
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
