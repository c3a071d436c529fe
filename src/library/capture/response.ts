/** Observation of responses while the agent reads them. */
import { ConnectionError, ProtocolError } from "../client/index.ts";
import { readServerSentEvents } from "../client/sse.ts";
import { ANSWERS, type DialectName, type RecordedAnswer } from "../../dialects/index.ts";
import { pushIterator, type PushIterator } from "../../base/util/push-iterator.ts";
import { createAssembler } from "./create-assembler.ts";
import type { SamplingCall } from "./request.ts";

/** Dialect and body of a request, which determine the form of its answer. */
export type AnsweredCall = Pick<SamplingCall, "dialect" | "body">;

/** Response to pass on, and the answer in it. */
export interface WatchedResponse {
  readonly response: Response;
  /**
   * Answer in the response; rejects if the response is truncated, cancelled or not an answer of the dialect, so that no partial turn is
   * recorded.
   */
  readonly answer: Promise<RecordedAnswer>;
}

/** Whether a response is an event stream. */
export function isEventStream(contentType: string | null): boolean {
  return contentType?.toLowerCase().startsWith("text/event-stream") ?? false;
}

/**
 * Returns a response with the same bytes, and the answer in them.
 *
 * Every chunk is passed to the agent first and at once. The body is read as fast as it arrives, whether or not the agent reads it, so
 * neither reader can block the other; memory use is one response. If the agent cancels, the request is cancelled too.
 *
 * @param response - Response of the service; its body is consumed.
 * @param call - The request.
 * @returns Response for the agent, and the answer.
 */
export function watchResponse(response: Response, call: AnsweredCall): WatchedResponse {
  const { body } = response;
  if (body === null) return { response, answer: Promise.reject(new ProtocolError("The answer has no body")) };
  const bytes = pushIterator<Uint8Array>(() => {});
  const copy = new Response(passOn(body.getReader(), bytes), response);
  // A constructed response has no URL, which clients show in their messages.
  Object.defineProperty(copy, "url", { value: response.url });
  return { response: copy, answer: readAnswer(isEventStream(response.headers.get("content-type")), bytes, call) };
}

/** Returns a stream for the agent with the bytes of `reader`, and copies every chunk to `bytes`. */
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
 * Parses the answer from the bytes of a response.
 *
 * @param isStream - Whether the response is an event stream.
 * @param bytes - Body of the response.
 * @param call - The request.
 * @returns The answer.
 * @throws ConnectionError, HttpError, ProtocolError for a truncated, failed or invalid response. A stream that is truncated after all its
 *   choices have ended is complete.
 */
export async function readAnswer(isStream: boolean, bytes: AsyncIterable<Uint8Array>, call: AnsweredCall): Promise<RecordedAnswer> {
  if (!isStream) return parseAnswer(call.dialect, parseJson(await readText(bytes)));
  const assembler = createAssembler(call.dialect, call.body);
  try {
    for await (const event of readServerSentEvents(bytes)) assembler.push(event);
  } catch (error) {
    if (!assembler.isComplete) throw error;
  }
  const answer = assembler.toAnswer();
  if (answer === null) throw new ProtocolError("The stream ended without an answer");
  return parseAnswer(call.dialect, answer);
}

async function readText(bytes: AsyncIterable<Uint8Array>): Promise<string> {
  const decoder = new TextDecoder();
  let text = "";
  for await (const piece of bytes) text += decoder.decode(piece, { stream: true });
  return text + decoder.decode();
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch (cause) {
    throw new ProtocolError("The answer is no JSON", { cause });
  }
}

function parseAnswer(dialect: DialectName, value: unknown): RecordedAnswer {
  const { success, data } = ANSWERS[dialect].safeParse(value);
  if (!success) throw new ProtocolError(`The answer has another form than the API's (${dialect})`);
  if ("choices" in data && (data.choices as readonly unknown[]).length === 0) throw new ProtocolError("The answer has no choice");
  return data;
}
