/** Server-sent events of another server, forwarded as they are read. */
import { isRecord, parseJson } from "../../../base/util/values.ts";
import { EngineError, isAbort } from "../../../base/errors.ts";
import { toErrorBody } from "../../http/errors.ts";
import { clientGone } from "../request/client-signal.ts";
import { ShutdownError, toChatError } from "../request/errors.ts";
import { withMember } from "../text/json-members.ts";

/** Options of {@link forwardedStream}. */
export interface ForwardedStreamOptions {
  /** Value of `model` in every chunk; null leaves it unchanged. */
  readonly rename: string | null;
  /** Called once: at the end, on a failure, or when the reader disconnects. */
  readonly onEnd: (error: unknown) => void;
  /** Called with the data of each event. Returns whether the event is left out. @default events are not read */
  readonly onEvent?: ((json: string) => boolean) | undefined;
}

/** Error event of a stream that fails or ends early. */
const BROKEN = toErrorBody(500, { message: "Internal server error", code: "E_ENGINE" });

/**
 * Returns the complete events of `source`. Nothing is read ahead of the reader, and `source` is closed when the reader disconnects. A
 * source that fails, or ends without `[DONE]`, ends in an error event, as every stream of the chat route does.
 *
 * @param source - Bytes of the other server's stream.
 * @param options - New model name and callbacks.
 */
export function forwardedStream(
  source: AsyncIterable<Uint8Array>,
  { rename, onEnd, onEvent }: ForwardedStreamOptions,
): ReadableStream<Uint8Array> {
  const events = wholeEvents(source);
  const modelJson = rename === null ? null : JSON.stringify(rename);
  const isUnchanged = modelJson === null && onEvent === undefined;
  /** Whether `[DONE]` was read. */
  let isDone = false;
  let hasEnded = false;
  const endOnce = (error: unknown) => {
    if (!hasEnded) onEnd(error);
    hasEnded = true;
  };
  /** Returns the next events; null at the end. @throws EngineError `E_ENGINE` at an end without `[DONE]`, and the source's error. */
  const nextEvents = async (): Promise<Uint8Array | null> => {
    const { done, value } = await events.next();
    if (done !== true) {
      isDone ||= includesDone(value);
      return isUnchanged ? value : changedEvents(value, modelJson, onEvent);
    }
    if (!isDone) throw new EngineError("The upstream's stream ended early");
    return null;
  };
  return new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        let failure: unknown = null;
        try {
          const next = await nextEvents();
          if (next !== null) return controller.enqueue(next);
        } catch (error) {
          failure = error;
        }
        // The stream ends here. A client that has disconnected gets no error event.
        if (!isDone && !isAbort(failure)) controller.enqueue(errorEvents(failure));
        endOnce(failure);
        controller.close();
      },
      async cancel() {
        endOnce(clientGone());
        await events.return(undefined);
      },
    },
    // Nothing is read ahead of the reader.
    { highWaterMark: 0 },
  );
}

/** Returns the last events of a stream that fails. Only the reason of a shutdown is stated. */
function errorEvents(failure: unknown): Buffer {
  const body = failure instanceof ShutdownError ? toChatError(failure).body : BROKEN;
  return Buffer.from(`data: ${JSON.stringify(body)}\n\ndata: [DONE]\n\n`);
}

/** Returns the offset just after the last complete event; a blank line ends an event. */
function endOfEvents(bytes: Buffer): number {
  const ends = ["\n\n", "\r\n\r\n"].map((blankLine) => {
    const start = bytes.lastIndexOf(blankLine);
    return start === -1 ? 0 : start + blankLine.length;
  });
  return Math.max(...ends);
}

/** Yields complete events, several at a time. Bytes of an incomplete event are held back, and dropped if the source ends. */
async function* wholeEvents(source: AsyncIterable<Uint8Array>): AsyncGenerator<Buffer, undefined> {
  let incompleteEvent = Buffer.alloc(0);
  for await (const chunk of source) {
    const bytes = Buffer.concat([incompleteEvent, chunk]);
    const end = endOfEvents(bytes);
    incompleteEvent = bytes.subarray(end);
    if (end > 0) yield bytes.subarray(0, end);
  }
  // Some servers omit the last blank line.
  if (includesDone(incompleteEvent)) yield Buffer.from(`${incompleteEvent.toString().trimEnd()}\n\n`);
  return undefined;
}

/** Whether the events include `[DONE]`, the last event of a stream. */
function includesDone(events: Buffer): boolean {
  if (!events.includes("[DONE]")) return false;
  return events
    .toString()
    .split("\n")
    .some((line) => /^data: ?\[DONE\]\s*$/.test(line));
}

/**
 * Returns events with every `model` replaced, without the events that `onEvent` leaves out. The data of an event is one line.
 *
 * @param modelJson - JSON of the new name; null leaves `model` unchanged.
 */
function changedEvents(events: Buffer, modelJson: string | null, onEvent: ForwardedStreamOptions["onEvent"]): Buffer {
  const lines = events.toString().split("\n");
  const changedLines: string[] = [];
  let isLeftOut = false;
  for (const line of lines) {
    const isBlank = line.trimEnd() === "";
    // The blank line after an event belongs to it.
    if (isBlank && isLeftOut) {
      isLeftOut = false;
      continue;
    }
    const json = line.startsWith("data: {") ? line.slice("data: ".length).trimEnd() : null;
    isLeftOut = json !== null && onEvent?.(json) === true;
    if (isLeftOut) continue;
    changedLines.push(json === null || modelJson === null ? line : renamedLine(line, json, modelJson));
  }
  return Buffer.from(changedLines.join("\n"));
}

/** Returns a line with `model` replaced; an event without a `model`, such as an error, is unchanged. */
function renamedLine(line: string, json: string, modelJson: string): string {
  const event = parseJson(json);
  if (!isRecord(event) || !("model" in event)) return line;
  return `data: ${withMember(json, "model", modelJson)}`;
}
