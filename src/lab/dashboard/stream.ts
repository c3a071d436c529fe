/** Event stream of the dashboard: the list of runs with its changes, and new metrics and events of the runs that a page shows. */
import type { SSEStreamingApi } from "hono/streaming";
import { EVENTS_FILE, METRICS_FILE } from "../../run/files.ts";
import { type LineTail, tailOf } from "../../run/line-tail.ts";
import { columnsOf } from "../../run/read-run.ts";
import { eventLine, metricsRow, type EventLine, type MetricsRow } from "../../run/rows.ts";
import { deferred } from "../../base/util/deferred.ts";
import type { StreamMessages } from "./api.ts";
import { formatPosition, parsePosition, type RunPosition } from "./position.ts";
import type { RunReader } from "./run-reader.ts";
import type { RunChanges, Runs } from "./runs.ts";

/** Milliseconds without a message after which a comment is sent, so that a connection that is gone is noticed. */
const HEARTBEAT_MS = 15_000;

/** Run that a connection follows. */
interface FollowedRun {
  readonly reader: RunReader;
  readonly events: LineTail<EventLine>;
  readonly metrics: LineTail<MetricsRow>;
}

/** Request for a stream. */
export interface StreamRequest {
  /** Values of the query parameter `run`: `id` or `id@position`. */
  readonly wanted: readonly string[];
  /** Header `Last-Event-ID`: the positions of the runs in the order of `wanted`. */
  readonly lastEventId: string | undefined;
  /** Signal that ends the stream. */
  readonly signal: AbortSignal;
}

/**
 * Prepares a stream of {@link StreamMessages}.
 *
 * @returns function that sends the messages until the client leaves or the signal aborts.
 * @throws NotFoundError `E_NOT_FOUND` for an unknown run, ArgumentError `E_ARGUMENT` for a malformed position.
 */
export async function openStream(
  runs: Runs,
  { wanted, lastEventId, signal }: StreamRequest,
): Promise<(stream: SSEStreamingApi) => Promise<void>> {
  const resumedPositions = lastEventId?.split(",").map(parsePosition) ?? [];
  const followed = await Promise.all(
    wanted.map(async (text, index) => {
      const [id = "", position] = text.split("@");
      const reader = await runs.get(id);
      return follow(reader, resumedPositions[index] ?? parsePosition(position ?? reader.position));
    }),
  );
  return (stream) => send(stream, { runs, followed, signal });
}

/** Opens the files of a run to read from a position on. */
function follow(reader: RunReader, from: RunPosition): FollowedRun {
  return {
    reader,
    events: tailOf(reader.run, EVENTS_FILE, { schema: eventLine, from: { line: 0, end: from.events } }),
    metrics: tailOf(reader.run, METRICS_FILE, { schema: metricsRow, from: { line: 0, end: from.metrics } }),
  };
}

/** Sends the list of runs, then every change, until the client leaves or the signal aborts. */
async function send(
  stream: SSEStreamingApi,
  { runs, followed, signal }: { readonly runs: Runs; readonly followed: readonly FollowedRun[]; readonly signal: AbortSignal },
): Promise<void> {
  const pendingChanges: RunChanges[] = [];
  /** Resolves when there is something to send: a change, the end of the stream, or a heartbeat that is due. */
  let wake = deferred<void>();
  const stop = () => wake.resolve();
  stream.onAbort(stop);
  signal.addEventListener("abort", stop);
  const write = <K extends keyof StreamMessages>(event: K, data: StreamMessages[K], id?: string) =>
    stream.writeSSE({ event, data: JSON.stringify(data), ...(id === undefined ? {} : { id }) });
  const writeNewRows = async () => {
    for (const run of followed) {
      const messages = await newMessages(run);
      const id = followed.map(positionOf).join(",");
      for (const [index, [event, data]] of messages.entries()) {
        // Only the last message has an id: a client that loses the connection before it gets the run's messages again.
        const isLast = index === messages.length - 1;
        await write(event, data, isLast ? id : undefined);
      }
    }
  };
  const summaries = (await runs.list()).map((reader) => reader.summary());
  const watched = new Set(followed.map(({ reader }) => reader.run.id));
  const unsubscribe = runs.subscribe({
    watched,
    onChange: (changes) => {
      pendingChanges.push(changes);
      wake.resolve();
    },
  });
  try {
    await write("runs", summaries);
    await writeNewRows();
    while (!stream.aborted && !signal.aborted) {
      const heartbeat = setTimeout(() => wake.resolve(), HEARTBEAT_MS);
      await wake.promise;
      clearTimeout(heartbeat);
      wake = deferred();
      // A comment, which clients ignore.
      if (pendingChanges.length === 0) await stream.write(": still here\n\n");
      for (const { changed, removed } of pendingChanges.splice(0)) {
        for (const id of removed) await write("run-remove", { id });
        for (const reader of changed) await write("run", reader.summary());
      }
      await writeNewRows();
    }
  } finally {
    unsubscribe();
    signal.removeEventListener("abort", stop);
  }
}

/** Message about a followed run. */
type RunMessage = readonly ["rows", StreamMessages["rows"]] | readonly ["event", StreamMessages["event"]];

/**
 * Reads the metrics and events recorded since the last call. Reading of a file stops at a damaged line, which the summary of the run
 * reports.
 */
async function newMessages({ reader, events, metrics }: FollowedRun): Promise<RunMessage[]> {
  const run = reader.run.id;
  await Promise.all([events, metrics].map((tail) => tail.read().catch(() => false)));
  const rows = metrics.rows.splice(0);
  const message = { run, metrics: { train: columnsOf(rows, "train"), eval: columnsOf(rows, "eval") } };
  return [
    ...(rows.length === 0 ? [] : [["rows", message] as const]),
    ...events.rows.splice(0).map((event) => ["event", { run, event: event as StreamMessages["event"]["event"] }] as const),
  ];
}

/** Returns the position up to which the files of a run were read. */
function positionOf({ events, metrics }: FollowedRun): string {
  return formatPosition({ events: events.end, metrics: metrics.end });
}
