import { createParser } from "eventsource-parser";
import { chatCompletionChunk, type ChatCompletionChunk } from "../schema/index.ts";
import { ConnectionError, HttpError, ProtocolError, readErrorBody } from "./errors.ts";

/** Max size of one event, in characters. Bounds memory if a server never ends a line. */
const MAX_EVENT_CHARACTERS = 64 * 1024 * 1024;

/**
 * Parses the bytes of an event stream into chat completion chunks.
 *
 * `[DONE]` ends the stream; later bytes are ignored.
 *
 * @throws {@link HttpError} `E_HTTP` (status null) for an `error` payload.
 * @throws {@link ProtocolError} `E_PROTOCOL` for a payload that is not a chunk.
 * @throws {@link ConnectionError} `E_CONNECTION` if the bytes end before `[DONE]`.
 */
export async function* readChatStream(bytes: AsyncIterable<Uint8Array>): AsyncGenerator<ChatCompletionChunk, void, undefined> {
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
      yield readChunk(payload);
    }
  }
  throw new ConnectionError("The stream ended before `[DONE]`; the answer is incomplete");
}

function readChunk(payload: string): ChatCompletionChunk {
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
    });
  }
  const result = chatCompletionChunk.safeParse(value);
  if (result.success) return result.data;
  const issue = result.error.issues[0];
  throw new ProtocolError(`Expected a completion chunk; at \`${issue?.path.join(".") ?? ""}\`: ${issue?.message ?? "invalid"}`);
}
