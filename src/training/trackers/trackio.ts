/** Tracker that logs a run to a trackio server. */
import type { TrackedEvent, TrackedRun, Tracker, TrackerSession } from "../train/tracker.ts";
import { sendToTracker, serverUrl } from "./http.ts";
import { checkRollouts, DEFAULT_ROLLOUTS, rolloutsOf } from "./rollouts.ts";

/** Options of {@link trackioTracker}. */
export interface TrackioOptions {
  /** Address of the trackio server. @default the environment variable `TRACKIO_SERVER_URL` */
  readonly url?: string | undefined;
  /**
   * Secret that the server prints at its start and expects in every request. @default the parameter `write_token` of the address, or
   * `TRACKIO_WRITE_TOKEN`
   */
  readonly token?: string | undefined;
  /** Name of the project. @default "whetstone" */
  readonly project?: string | undefined;
  /** Display name of the run on the server; need not be unique. @default the last component of the run directory */
  readonly runName?: string | undefined;
  /** Max rollouts per step and per evaluation to store as traces. @default 8 */
  readonly rollouts?: number | undefined;
  /** Name of the tracker; runs with two trackio trackers need two names. @default "trackio" */
  readonly name?: string | undefined;
}

/** Entry of `POST /api/bulk_log`. The server ignores an entry with a `log_id` that it already has. */
interface LogEntry {
  readonly metrics: Readonly<Record<string, unknown>>;
  readonly step: number;
  readonly log_id: string;
}

/**
 * Logs a run to a trackio server: configuration, metrics, and rollouts as traces. Works with a server that the user started, such as
 * `trackio show`, which prints the address with the token for writing.
 *
 * @param options - All optional if `TRACKIO_SERVER_URL` is set.
 * @returns The tracker.
 * @throws ConfigError `E_CONFIG` without a valid address.
 * @throws ArgumentError `E_ARGUMENT` for a negative number of rollouts.
 * @example
 * ```ts
 * import { trainRl } from "whetstone/train";
 * import { trackioTracker } from "whetstone/trackers/trackio";
 *
 * const trackers = [trackioTracker({ url: "http://127.0.0.1:7860/?write_token=secret", project: "sums" })];
 * await trainRl({ model, environment, steps: 20, runDir: "runs/sums", trackers }).done;
 * ```
 */
export function trackioTracker(options: TrackioOptions = {}): Tracker {
  const { TRACKIO_SERVER_URL, TRACKIO_WRITE_TOKEN } = process.env;
  const { project = "whetstone", runName, rollouts = DEFAULT_ROLLOUTS, name = "trackio" } = options;
  const address = new URL(serverUrl(options.url ?? TRACKIO_SERVER_URL, "TRACKIO_SERVER_URL"));
  const token = options.token ?? address.searchParams.get("write_token") ?? TRACKIO_WRITE_TOKEN;
  const url = `${address.origin}${address.pathname.replace(/\/+$/u, "")}/api/bulk_log`;
  checkRollouts(rollouts);
  const headers = token === undefined ? {} : { "x-trackio-write-token": token };
  return { name, open: async (run) => sessionOf(run, { url, headers, project, runName: runName ?? run.name, rollouts }) };
}

/** Destination of a run's metrics on the server. */
interface Target {
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly project: string;
  readonly runName: string;
  readonly rollouts: number;
}

/** Returns the session of a run. It has no state, because the server ignores entries that it already has. */
function sessionOf(run: TrackedRun, { url, headers, project, runName, rollouts }: Target): TrackerSession {
  return {
    async log(events, signal) {
      const entries: LogEntry[] = [];
      for (const event of events) entries.push(...(await entriesOf(run, event, rollouts)));
      const { id, config } = run;
      const logs = entries.map((entry) => ({ project, run: runName, run_id: id, config, ...entry }));
      if (logs.length > 0) await sendToTracker({ url, headers, body: { logs, hf_token: null }, signal });
      return null;
    },
    close: async () => {},
  };
}

/** Returns the entries of an event: its metrics, then up to `count` rollouts as traces. Empty for an event without metrics. */
async function entriesOf(run: TrackedRun, tracked: TrackedEvent, count: number): Promise<LogEntry[]> {
  const { event, step, metrics } = tracked;
  if (Object.keys(metrics).length === 0) return [];
  const id = `${run.id}-${event.seq}`;
  const rollouts = await rolloutsOf(run, tracked, count);
  const traceEntries = rollouts.map(({ split, scenarioIndex, index, trajectory }) => {
    const metadata = { ...trajectory.metadata, reward: trajectory.reward, scenario_index: scenarioIndex, rollout: index };
    const trace = { _type: "trackio.trace", messages: trajectory.messages(), metadata };
    return { metrics: { [`rollouts/${split}`]: trace }, step, log_id: `${id}-${scenarioIndex}-${index}` };
  });
  return [{ metrics, step, log_id: id }, ...traceEntries];
}
