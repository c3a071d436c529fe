/** Observation of responses while the agent reads them. */
import type { z } from "zod";
import { ConnectionError, ProtocolError } from "../client/index.ts";
import { readServerSentEvents } from "../client/sse.ts";
import { ANSWERS, type DialectName, type RecordedAnswer } from "../../dialects/index.ts";
import { pushIterator, type PushIterator } from "../../base/util/push-iterator.ts";
import { shown } from "../../base/util/shown.ts";
import { parseWith } from "../../base/util/validation.ts";
import { createAssembler } from "./create-assembler.ts";
import type { SamplingCall } from "./request.ts";

/** Dialect and body of a request, which determine the form of its answer. */
export type AnsweredCall = Pick<SamplingCall, "dialect" | "body">;

/** Response to pass on, and the answer in it. */
export interface WatchedResponse {
  readonly response: Response;
  /**
   * Answer in the response, see {@link readAnswer}. Rejects if the response is truncated or cancelled before the answer is complete, or is
   * not an answer of the dialect, so that no partial turn is recorded.
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
 * Every chunk is passed to the agent first and at once. The body is read as fast as it arrives, deliberately without backpressure: an agent
 * that reads slowly or not at all must not delay the answer. So up to the whole body is buffered in memory. If the agent cancels, the
 * request is cancelled too.
 *
 * @param response - Response of the service; its body is consumed.
 * @param call - The request.
 * @returns Response for the agent, and the answer.
 */
export function watchResponse(response: Response, call: AnsweredCall): WatchedResponse {
  const { body } = response;
  if (body === null) return { response, answer: Promise.reject(new ProtocolError("The answer has no body")) };
  // If the answer turns out to be invalid, its reader leaves, but the agent still gets the remaining body.
  const copiedBody = pushIterator<Uint8Array>(() => {});
  const passedOn = new Response(passOn(body.getReader(), copiedBody), response);
  // A constructed response has no URL, which clients show in their messages.
  Object.defineProperty(passedOn, "url", { value: response.url });
  return { response: passedOn, answer: readAnswer(isEventStream(response.headers.get("content-type")), copiedBody, call) };
}

/** Returns a stream for the agent with the bytes of `reader`, and pushes a copy of every chunk to `copies`. */
function passOn(reader: ReadableStreamDefaultReader<Uint8Array>, copies: PushIterator<Uint8Array>): ReadableStream<Uint8Array> {
  let isCancelled = false;
  const pump = async (controller: ReadableByteStreamController): Promise<void> => {
    for (;;) {
      const { done, value } = await reader.read();
      // `cancel` has failed the copies, and the controller accepts no more chunks.
      if (isCancelled) return;
      if (done) break;
      // A byte stream rejects empty chunks.
      if (value.byteLength === 0) continue;
      // Copied first, because enqueuing transfers the chunk's buffer.
      const copy = value.slice();
      controller.enqueue(value);
      copies.push(copy);
    }
    copies.end();
    controller.close();
    // A BYOB reader learns of the end only through its own buffer.
    controller.byobRequest?.respond(0);
  };
  return new ReadableStream({
    type: "bytes",
    start(controller) {
      pump(controller).catch((error: unknown) => {
        // Has no effect after a cancel, which has already failed the copies.
        copies.fail(new ConnectionError("The response ended before the answer was complete", { cause: error }));
        if (!isCancelled) controller.error(error);
      });
    },
    async cancel(reason) {
      isCancelled = true;
      copies.fail(new ConnectionError("The agent stopped reading the response before its end"));
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
 * @throws ConnectionError, HttpError, ProtocolError for a truncated, failed or invalid response. A stream is complete once all its choices
 *   have ended: later errors are ignored, such as a connection closed before `[DONE]`.
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
  if (answer === null) throw new ProtocolError("Expected events of an answer, got a stream without one");
  return parseAnswer(call.dialect, answer);
}

/** Decodes a whole body. */
async function readText(bytes: AsyncIterable<Uint8Array>): Promise<string> {
  const decoder = new TextDecoder();
  let text = "";
  for await (const piece of bytes) text += decoder.decode(piece, { stream: true });
  return text + decoder.decode();
}

/** Parses JSON. @throws ProtocolError `E_PROTOCOL` for any other text. */
function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch (cause) {
    throw new ProtocolError(`Expected an answer in JSON, got ${shown(text)}`, { cause });
  }
}

/** Validates an answer with the schema of its dialect. @throws ProtocolError `E_PROTOCOL` for an invalid one, and for one without choices. */
function parseAnswer(dialect: DialectName, value: unknown): RecordedAnswer {
  const result = parseWith<z.ZodType<RecordedAnswer>>(ANSWERS[dialect], value, [], "the answer");
  if ("mismatch" in result) throw new ProtocolError(`Expected an answer of the API \`${dialect}\`: ${result.mismatch.text}`);
  const { data } = result;
  if ("choices" in data && Array.isArray(data.choices) && data.choices.length === 0)
    throw new ProtocolError("Expected at least one choice in the answer, got none");
  return data;
}
