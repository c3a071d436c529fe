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
 * @param options - New model name and the callback for the end.
 */
export function forwardedStream(
  source: AsyncIterable<Uint8Array>,
  { rename, onEnd, onEvent }: ForwardedStreamOptions,
): ReadableStream<Uint8Array> {
  const events = wholeEvents(source);
  const model = rename === null ? null : JSON.stringify(rename);
  const isUnread = model === null && onEvent === undefined;
  let isDone = false;
  let isOver = false;
  const end = (error: unknown) => {
    if (!isOver) onEnd(error);
    isOver = true;
  };
  return new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        let isAborted = false;
        let failure = BROKEN;
        let reason: unknown = null;
        try {
          const { done, value } = await events.next();
          if (done !== true) {
            isDone ||= includesDone(value);
            return controller.enqueue(isUnread ? value : changed(value, model, onEvent));
          }
        } catch (error) {
          reason = error;
          isAborted = isAbort(error);
          if (error instanceof ShutdownError) failure = toChatError(error).body;
        }
        // A client that has disconnected gets no error event.
        if (!isDone && !isAborted) controller.enqueue(Buffer.from(`data: ${JSON.stringify(failure)}\n\ndata: [DONE]\n\n`));
        end(reason ?? (isDone ? null : new EngineError("The upstream's stream ended early")));
        controller.close();
      },
      async cancel() {
        end(clientGone());
        await events.return(undefined);
      },
    },
    { highWaterMark: 0 },
  );
}

/** Returns the offset just after the last complete event; a blank line ends an event. */
function endOfEvents(bytes: Buffer): number {
  const ends = ["\n\n", "\r\n\r\n"].map((blank) => {
    const at = bytes.lastIndexOf(blank);
    return at === -1 ? 0 : at + blank.length;
  });
  return Math.max(...ends);
}

/** Yields several events at a time. Bytes of an incomplete event are held back, and dropped if the source ends. */
async function* wholeEvents(source: AsyncIterable<Uint8Array>): AsyncGenerator<Buffer, undefined> {
  let rest = Buffer.alloc(0);
  for await (const chunk of source) {
    const bytes = Buffer.concat([rest, chunk]);
    const end = endOfEvents(bytes);
    rest = bytes.subarray(end);
    if (end > 0) yield bytes.subarray(0, end);
  }
  // Some servers omit the last blank line.
  if (includesDone(rest)) yield Buffer.from(`${rest.toString().trimEnd()}\n\n`);
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
 * Returns the events with every `model` replaced, and without those that `onEvent` leaves out. Each event is one line.
 *
 * @param model - JSON of the new name; null leaves it unchanged.
 */
function changed(events: Buffer, model: string | null, onEvent: ForwardedStreamOptions["onEvent"]): Buffer {
  const lines = events.toString().split("\n");
  const kept: string[] = [];
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
    if (!isLeftOut) kept.push(json === null || model === null ? line : renamedLine(line, json, model));
  }
  return Buffer.from(kept.join("\n"));
}

/** Returns a line with `model` replaced by `value`; an event without a `model`, such as an error, is unchanged. */
function renamedLine(line: string, json: string, value: string): string {
  const event = parseJson(json);
  if (!isRecord(event) || !("model" in event)) return line;
  return `data: ${withMember(json, "model", value)}`;
}
