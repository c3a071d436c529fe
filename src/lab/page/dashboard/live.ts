/** Live data of the dashboard: the list of runs, and the metrics of the shown runs, over one event stream. */
import { useEffect, useState } from "preact/hooks";
import type { RunMetrics, RunSummary, StreamMessages } from "../../dashboard/api.ts";
import { mergeMetrics } from "./merge-metrics.ts";
import { getJson, useResource } from "./requests.ts";

/** State of the event stream. */
export type Connection = "connecting" | "live" | "lost";

/** List of runs as it changes, and the metrics of the followed runs. */
export interface Live {
  /** Runs, the last written first; undefined before the first message. */
  readonly runs: readonly RunSummary[] | undefined;
  readonly connection: Connection;
  /** Metrics of the followed runs in their order; undefined before the first answer. */
  readonly metrics: readonly RunMetrics[] | undefined;
  readonly error: Error | null;
}

/** Milliseconds until a rejected stream is opened again. */
const RETRY_MS = 3000;

/** Returns the address of the event stream. The stream continues each followed run after the position of its metrics. */
function streamAddress(followed: readonly RunMetrics[]): string {
  const query = followed.map(({ run, position }) => `run=${encodeURIComponent(`${run}@${position}`)}`).join("&");
  return `/ui/api/events${query === "" ? "" : `?${query}`}`;
}

/**
 * Follows the list of runs and the metrics of some runs over one event stream, because browsers limit the connections to a server. The
 * metrics are requested once, and then merged with the rows that arrive.
 *
 * @param followed - Ids of the runs whose metrics are followed.
 */
export function useLive(followed: readonly string[]): Live {
  /** Identity of the followed runs, so that a new array of the same ids opens no new stream. */
  const key = followed.join(" ");
  const path = followed.length === 0 ? null : `/ui/api/metrics?${followed.map((id) => `run=${encodeURIComponent(id)}`).join("&")}`;
  const initial = useResource<readonly RunMetrics[]>(path);
  const [runs, setRuns] = useState<readonly RunSummary[]>();
  const [connection, setConnection] = useState<Connection>("connecting");
  /** Metrics with all rows received so far, and the runs that they belong to. */
  const [merged, setMerged] = useState<{ readonly key: string; readonly metrics: readonly RunMetrics[] }>();
  const [attempt, setAttempt] = useState(0);

  useEffect(() => {
    if (path !== null && initial.value === undefined && initial.error === null) return undefined;
    let metrics = initial.value ?? [];
    setMerged({ key, metrics });
    const source = new EventSource(streamAddress(metrics));
    let retry: ReturnType<typeof setTimeout> | undefined;
    const listen = <Name extends keyof StreamMessages>(name: Name, handle: (message: StreamMessages[Name]) => void) =>
      source.addEventListener(name, ({ data }: MessageEvent<string>) => handle(JSON.parse(data) as StreamMessages[Name]));
    source.addEventListener("open", () => setConnection("live"));
    source.addEventListener("error", () => {
      setConnection("lost");
      // The browser reconnects by itself unless the service rejected the stream, such as after the end of the session.
      if (source.readyState !== EventSource.CLOSED) return;
      getJson("/ui/api/session").catch(() => undefined);
      retry = setTimeout(() => setAttempt((before) => before + 1), RETRY_MS);
    });
    listen("runs", (all) => setRuns(all));
    listen("run", (changed) => setRuns((known = []) => [changed, ...known.filter(({ id }) => id !== changed.id)]));
    listen("run-remove", ({ id }) => setRuns((known = []) => known.filter((run) => run.id !== id)));
    listen("rows", ({ run, metrics: added }) => {
      metrics = metrics.map((known) => (known.run === run ? { ...known, metrics: mergeMetrics(known.metrics, added) } : known));
      setMerged({ key, metrics });
    });
    return () => {
      clearTimeout(retry);
      source.close();
    };
  }, [key, initial.value, initial.error, attempt]);

  const sorted = runs?.toSorted(
    (a, b) => (b.updated ?? "").localeCompare(a.updated ?? "") || a.name.localeCompare(b.name, "en", { numeric: true }),
  );
  // After a change of the followed runs, the merged metrics belong to the previous ones until the answer arrives.
  const followedMetrics = merged?.key === key && initial.value !== undefined ? merged.metrics : undefined;
  return { runs: sorted, connection, metrics: followed.length === 0 ? [] : followedMetrics, error: initial.error };
}
