/** Tracker that logs a run to an MLflow server. */
import type { TrackedEvent, TrackedRun, Tracker, TrackerSession } from "../train/tracker.ts";
import { sendToTracker, serverUrl, TrackerResponseError } from "./http.ts";
import { otlpRequest } from "./otlp.ts";
import { parametersOf } from "./parameters.ts";
import { checkRollouts, DEFAULT_ROLLOUTS, rolloutsOf } from "./rollouts.ts";

/** Options of {@link mlflowTracker}. */
export interface MlflowOptions {
  /** Address of the tracking server. @default the environment variable `MLFLOW_TRACKING_URI` */
  readonly url?: string | undefined;
  /** Name of the experiment; created if it does not exist. @default `MLFLOW_EXPERIMENT_NAME`, or "whetstone" */
  readonly experiment?: string | undefined;
  /** Display name of the run on the server; need not be unique. @default the last component of the run directory */
  readonly runName?: string | undefined;
  /**
   * Secret for the header `Authorization: Bearer …`.
   *
   * @default `MLFLOW_TRACKING_TOKEN`; without it, `MLFLOW_TRACKING_USERNAME` and `MLFLOW_TRACKING_PASSWORD` as basic authentication, or
   *   none
   */
  readonly token?: string | undefined;
  /**
   * Max rollouts per step and per evaluation to store as traces. Traces need a server that accepts OTLP as JSON, such as MLflow 3.17.
   * @default 8
   */
  readonly rollouts?: number | undefined;
  /** Name of the tracker; runs with two MLflow trackers need two names. @default "mlflow" */
  readonly name?: string | undefined;
}

/** State of the tracker: ids of the experiment and of the run on the server. */
interface State {
  readonly experimentId: string;
  readonly runId: string;
}

/** Max metrics that the server accepts in one request `runs/log-batch`. */
const MAX_METRICS = 1_000;
/** Max parameters that the server accepts in one request `runs/log-batch`. */
const MAX_PARAMETERS = 100;
/** Max characters of a parameter's value. */
const MAX_PARAMETER_CHARACTERS = 6_000;
/** Max characters of the name of a metric or parameter. */
const MAX_KEY_CHARACTERS = 250;
/** Tag with the id of the run, so that a start without saved state finds the run on the server. */
const ID_TAG = "whetstone.run_id";
/** HTTP statuses of a server that has no endpoint for traces, or whose endpoint does not accept JSON. */
const NO_TRACES = new Set([400, 404, 405, 415, 501]);

/**
 * Logs a run to an MLflow server over its REST interface: parameters, metrics, the status of the run, and rollouts as traces.
 *
 * Metrics carry the times of the recorded events. A server with an SQL store ignores a value that it already has, so that a repeated
 * delivery adds nothing.
 *
 * @param options - All optional if `MLFLOW_TRACKING_URI` is set.
 * @returns The tracker.
 * @throws ConfigError `E_CONFIG` without a valid address.
 * @throws ArgumentError `E_ARGUMENT` for a negative number of rollouts.
 * @example
 * ```ts
 * import { trainRl } from "whetstone/train";
 * import { mlflowTracker } from "whetstone/trackers/mlflow";
 *
 * const trackers = [mlflowTracker({ url: "http://127.0.0.1:5000", experiment: "sums" })];
 * await trainRl({ model, environment, steps: 20, runDir: "runs/sums", trackers }).done;
 * ```
 */
export function mlflowTracker(options: MlflowOptions = {}): Tracker {
  const { MLFLOW_TRACKING_URI, MLFLOW_EXPERIMENT_NAME = "whetstone", MLFLOW_TRACKING_TOKEN } = process.env;
  const {
    experiment = MLFLOW_EXPERIMENT_NAME,
    runName,
    token = MLFLOW_TRACKING_TOKEN,
    rollouts = DEFAULT_ROLLOUTS,
    name = "mlflow",
  } = options;
  const url = serverUrl(options.url ?? MLFLOW_TRACKING_URI, "MLFLOW_TRACKING_URI");
  checkRollouts(rollouts);
  const traces: TraceSetting = { count: rollouts };
  return {
    name,
    async open(run, state, signal) {
      const server = { url, headers: authorization(token) };
      const names = { experiment, runName: runName ?? run.name };
      const serverRun = (state as State | null) ?? (await findOrCreate(server, run, names, signal));
      return sessionOf(server, run, serverRun, traces);
    },
  };
}

/** Number of rollouts to store as traces; set to 0 once the server has refused them, also for later sessions. */
interface TraceSetting {
  count: number;
}

/** Returns the header of the authentication by a token, or by the user and password of the environment; none without either. */
function authorization(token: string | undefined): Readonly<Record<string, string>> {
  if (token !== undefined && token !== "") return { authorization: `Bearer ${token}` };
  const { MLFLOW_TRACKING_USERNAME: user = "", MLFLOW_TRACKING_PASSWORD: password = "" } = process.env;
  return user === "" ? {} : { authorization: `Basic ${Buffer.from(`${user}:${password}`).toString("base64")}` };
}

/** Server with the headers of every request. */
interface Server {
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
}

/** Calls the REST interface. */
async function post<T>({ url, headers }: Server, path: string, body: unknown, signal: AbortSignal): Promise<T> {
  return (await sendToTracker({ url: `${url}/api/2.0/mlflow/${path}`, headers, body, signal })) as T;
}

/** Returns the id of an experiment; null if it does not exist. */
async function experimentIdOf({ url, headers }: Server, name: string, signal: AbortSignal): Promise<string | null> {
  const address = `${url}/api/2.0/mlflow/experiments/get-by-name?experiment_name=${encodeURIComponent(name)}`;
  try {
    const { experiment } = (await sendToTracker({ url: address, headers, signal })) as { experiment: { experiment_id: string } };
    return experiment.experiment_id;
  } catch (error) {
    if (error instanceof TrackerResponseError && error.status === 404) return null;
    throw error;
  }
}

/** Run in an answer of the server, with the fields used here. */
interface RunAnswer {
  readonly info: { readonly run_id: string };
}

/** Returns the run with the tag of this run's id, which an earlier start may have created, or creates the run. */
async function findOrCreate(
  server: Server,
  run: TrackedRun,
  { experiment, runName }: { readonly experiment: string; readonly runName: string },
  signal: AbortSignal,
): Promise<State> {
  const experimentId = (await experimentIdOf(server, experiment, signal)) ?? (await createExperiment(server, experiment, signal));
  const filter = `tags.\`${ID_TAG}\` = '${run.id}'`;
  const search = { experiment_ids: [experimentId], filter, max_results: 1 };
  const found = await post<{ runs?: RunAnswer[] }>(server, "runs/search", search, signal);
  const knownId = found.runs?.[0]?.info.run_id;
  if (knownId !== undefined) return { experimentId, runId: knownId };
  const tags = [
    { key: ID_TAG, value: run.id },
    { key: "mlflow.source.type", value: "LOCAL" },
    { key: "mlflow.source.name", value: run.runDir },
  ];
  const startTime = await startTimeOf(run);
  const body = { experiment_id: experimentId, run_name: runName, start_time: startTime, tags };
  const created = await post<{ run: RunAnswer }>(server, "runs/create", body, signal);
  return { experimentId, runId: created.run.info.run_id };
}

/** Creates an experiment, and returns its id. */
async function createExperiment(server: Server, name: string, signal: AbortSignal): Promise<string> {
  try {
    const created = await post<{ experiment_id: string }>(server, "experiments/create", { name }, signal);
    return created.experiment_id;
  } catch (error) {
    // Another run may have created the experiment meanwhile.
    const existingId = await experimentIdOf(server, name, signal);
    if (existingId === null) throw error;
    return existingId;
  }
}

/** Returns the time of the run's first event in milliseconds since 1970; now if the run has no event. */
async function startTimeOf(run: TrackedRun): Promise<number> {
  for await (const { event } of run.events(0)) return Date.parse(event.time);
  return Date.now();
}

/** Returns the session of a run on the server. */
function sessionOf(server: Server, run: TrackedRun, state: State, traces: TraceSetting): TrackerSession {
  /** Sends metrics or parameters of the run, at most `max` in each request. */
  const logBatches = async (name: "metrics" | "params", values: readonly object[], max: number, signal: AbortSignal) => {
    for (let from = 0; from < values.length; from += max)
      await post(server, "runs/log-batch", { run_id: state.runId, [name]: values.slice(from, from + max) }, signal);
  };
  return {
    async log(events, signal) {
      if (events.some(({ event }) => event.type === "run-start")) await logBatches("params", mlflowParameters(run), MAX_PARAMETERS, signal);
      await logBatches("metrics", events.flatMap(metricsOf), MAX_METRICS, signal);
      for (const event of events) await logRollouts(server, run, { event, state, traces }, signal);
      const status = events.flatMap(statusOf).at(-1);
      if (status !== undefined) await post(server, "runs/update", { run_id: state.runId, ...status }, signal);
      return state;
    },
    close: async () => {},
  };
}

/**
 * Sends the rollouts of an event as traces. After a server has refused traces, sets `traces.count` to 0, so that the failure is reported
 * once and the repeated delivery succeeds without traces.
 */
async function logRollouts(
  { url, headers }: Server,
  run: TrackedRun,
  { event, state, traces }: { readonly event: TrackedEvent; readonly state: State; readonly traces: TraceSetting },
  signal: AbortSignal,
): Promise<void> {
  const rollouts = await rolloutsOf(run, event, traces.count);
  if (rollouts.length === 0) return;
  const body = otlpRequest(run, rollouts, ({ trajectory }) => {
    const messages = trajectory.messages();
    return {
      "mlflow.spanType": JSON.stringify("AGENT"),
      "mlflow.spanInputs": JSON.stringify({ messages: messages.slice(0, -1) }),
      "mlflow.spanOutputs": JSON.stringify(messages.at(-1) ?? null),
    };
  });
  const ids = { "x-mlflow-experiment-id": state.experimentId, "x-mlflow-run-id": state.runId };
  try {
    await sendToTracker({ url: `${url}/v1/traces`, headers: { ...headers, ...ids }, body, signal });
  } catch (error) {
    if (!(error instanceof TrackerResponseError && NO_TRACES.has(error.status))) throw error;
    traces.count = 0;
    throw new Error(`the server does not accept traces (${error.message}); update the server, or set \`rollouts: 0\``, { cause: error });
  }
}

/** Returns the settings of a run as parameters of the server. */
function mlflowParameters({ config }: TrackedRun) {
  return [...parametersOf(config)].map(([key, value]) => ({ key: keyOf(key), value: String(value).slice(0, MAX_PARAMETER_CHARACTERS) }));
}

/** Returns the metrics of an event in the form of the server. */
function metricsOf({ event, step, metrics }: TrackedEvent) {
  const timestamp = Date.parse(event.time);
  return Object.entries(metrics).map(([name, value]) => ({ key: keyOf(name), value, timestamp, step }));
}

/**
 * Returns the status of the run that an event implies; empty for events that change none. A stopped run is `KILLED`, because it can be
 * resumed.
 */
function statusOf({ event }: TrackedEvent) {
  const end_time = Date.parse(event.time);
  if (event.type === "run-start" || event.type === "run-resume") return [{ status: "RUNNING" }];
  if (event.type === "run-fail") return [{ status: "FAILED", end_time }];
  if (event.type === "run-end") return [{ status: event.reason === "stopped" ? "KILLED" : "FINISHED", end_time }];
  return [];
}

/** Replaces the characters that MLflow does not allow in names of metrics and parameters, and empty or relative path components. */
function keyOf(name: string): string {
  const parts = name.split("/").map((part) => part.replaceAll(/[^\w\-. ]/gu, "_").replace(/^\.*$/u, "_"));
  return parts.join("/").slice(0, MAX_KEY_CHARACTERS);
}
