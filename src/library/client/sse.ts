/** Parser of server-sent events: from the bytes of a response to JSON payloads, and to chunks of a chat completion. */
import { createParser } from "eventsource-parser";
import { chatCompletionChunk, type ChatCompletionChunk } from "../../base/schema/index.ts";
import { ConnectionError, HttpError, ProtocolError, readErrorBody } from "./errors.ts";

/** Max size of one event, in characters. Bounds memory if a server never ends a line. */
const MAX_EVENT_CHARACTERS = 64 * 1024 * 1024;

/**
 * Parses the bytes of an event stream of chat completions into chunks.
 *
 * @throws {@link HttpError}, {@link ConnectionError} and {@link ProtocolError} as {@link readServerSentEvents}; `E_PROTOCOL` also for a payload that
 *   is not a chunk.
 */
export async function* readChatStream(bytes: AsyncIterable<Uint8Array>): AsyncGenerator<ChatCompletionChunk, void, undefined> {
  for await (const event of readServerSentEvents(bytes)) yield toChunk(event);
}

/**
 * Parses the bytes of an event stream into the JSON payloads of its events.
 *
 * `[DONE]` ends the stream; later bytes are ignored.
 *
 * @throws {@link HttpError} `E_HTTP` (status null) for an `error` payload.
 * @throws {@link ProtocolError} `E_PROTOCOL` for a payload that is not JSON.
 * @throws {@link ConnectionError} `E_CONNECTION` if the bytes end before `[DONE]`. Some APIs never send it; their callers have to catch the
 *   error.
 */
export async function* readServerSentEvents(bytes: AsyncIterable<Uint8Array>): AsyncGenerator<unknown, void, undefined> {
  /** Payloads of the events that a piece of the stream completes, in order. */
  const payloads: string[] = [];
  const decoder = new TextDecoder();
  const parser = createParser({
    maxBufferSize: MAX_EVENT_CHARACTERS,
    onEvent: (event) => payloads.push(event.data),
    onError: (error) => {
      if (error.type === "max-buffer-size-exceeded")
        throw new ProtocolError("An event of the stream is larger than the client reads", { cause: error });
    },
  });
  for await (const piece of bytes) {
    parser.feed(decoder.decode(piece, { stream: true }));
    for (const payload of payloads.splice(0)) {
      if (payload === "[DONE]") return;
      yield readPayload(payload);
    }
  }
  throw new ConnectionError("The stream ended before `[DONE]`; the answer is incomplete");
}

/** Parses the payload of an event. @throws HttpError `E_HTTP` for an error of the service, ProtocolError `E_PROTOCOL` for invalid JSON. */
function readPayload(payload: string): unknown {
  let value: unknown;
  try {
    value = JSON.parse(payload);
  } catch (error) {
    throw new ProtocolError(`Expected JSON in an event of the stream, got \`${payload.slice(0, 80)}\``, { cause: error });
  }
  if (typeof value === "object" && value !== null && "error" in value && value.error !== null) {
    const facts = readErrorBody(payload);
    throw new HttpError(`The stream failed: ${facts.message ?? "no message"}`, {
      status: null,
      type: facts.type,
      param: facts.param,
      serviceCode: facts.serviceCode,
      reason: facts.message,
    });
  }
  return value;
}

/** Validates a chunk. @throws {@link ProtocolError} `E_PROTOCOL` for any other value. */
export function toChunk(value: unknown): ChatCompletionChunk {
  const result = chatCompletionChunk.safeParse(value);
  if (result.success) return result.data;
  const issue = result.error.issues[0];
  throw new ProtocolError(`Expected a completion chunk; at \`${issue?.path.join(".") ?? ""}\`: ${issue?.message ?? "invalid"}`);
}
