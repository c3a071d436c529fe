/** Server-sent events of another server, handed on as fast as they are read. */
import { isAbort } from "../../errors.ts";
import { withMember } from "./json-members.ts";

/** Options of {@link forwardedStream}. */
export interface ForwardedStreamOptions {
  /** The `model` of every chunk; null leaves it as it is. */
  readonly rename: string | null;
  /** Called once: at the end, on a failure, and when the reader is gone. */
  readonly onEnd: () => void;
}

const BROKEN = { message: "Internal server error", type: "InternalServerError", param: null, code: 500 };

/**
 * The events of `source`. Nothing is read ahead of the reader, and when the reader leaves the source is closed. A source that
 * breaks off ends in an error event, as every stream of this route does.
 */
export function forwardedStream(source: AsyncIterable<Uint8Array>, { rename, onEnd }: ForwardedStreamOptions): ReadableStream<Uint8Array> {
  const events = rename === null ? source[Symbol.asyncIterator]() : renamed(source, rename);
  let isOver = false;
  const end = () => {
    if (!isOver) onEnd();
    isOver = true;
  };
  return new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        try {
          const { done, value } = await events.next();
          if (done !== true) return controller.enqueue(value);
        } catch (error) {
          if (!isAbort(error)) controller.enqueue(Buffer.from(`data: ${JSON.stringify({ error: BROKEN })}\n\ndata: [DONE]\n\n`));
        }
        end();
        controller.close();
      },
      async cancel() {
        end();
        await events.return?.();
      },
    },
    { highWaterMark: 0 },
  );
}

/** Every event's `model` replaced. An event is a line; bytes of an unfinished one wait for the rest. */
async function* renamed(source: AsyncIterable<Uint8Array>, name: string): AsyncGenerator<Uint8Array, undefined> {
  let rest = Buffer.alloc(0);
  const value = JSON.stringify(name);
  for await (const chunk of source) {
    const bytes = Buffer.concat([rest, chunk]);
    const end = bytes.lastIndexOf("\n") + 1;
    rest = bytes.subarray(end);
    if (end > 0)
      yield Buffer.from(
        bytes
          .subarray(0, end)
          .toString()
          .split("\n")
          .map((line) => renamedLine(line, value))
          .join("\n"),
      );
  }
  if (rest.length > 0) yield Buffer.from(renamedLine(rest.toString(), value));
  return undefined;
}

function renamedLine(line: string, value: string): string {
  if (!line.startsWith("data: {")) return line;
  const json = line.slice("data: ".length).trimEnd();
  try {
    // An error event names no model.
    if (!("model" in (JSON.parse(json) as object))) return line;
  } catch {
    return line;
  }
  return `data: ${withMember(json, "model", value)}`;
}
