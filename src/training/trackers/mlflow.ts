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
   * Secret for the header `Authorization: Bearer …`. @default `MLFLOW_TRACKING_TOKEN`; without it, `MLFLOW_TRACKING_USERNAME` and `MLFLOW_TRACKING_PASSWORD`, or no
   * authentication
   */
  readonly token?: string | undefined;
  /** Max rollouts per step and per evaluation to store as traces. Traces need a server that accepts OTLP as JSON, such as MLflow 3.17. @default 8 */
  readonly rollouts?: number | undefined;
  /** Name of the tracker; runs with two MLflow trackers need two names. @default "mlflow" */
  readonly name?: string | undefined;
}

/** State of the tracker. */
interface State {
  readonly experimentId: string;
  readonly runId: string;
}

/** Limits of the server for one request `runs/log-batch`. */
const MAX_METRICS = 1_000;
const MAX_PARAMETERS = 100;
/** Max characters of a parameter's value. */
const MAX_PARAMETER_CHARACTERS = 6_000;
/** Tag with the id of the run, so that a start without saved state finds the run on the server. */
const ID_TAG = "whetstone.run_id";
/** Statuses of a server that has no endpoint for traces, or not for JSON. */
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
      const api = new MlflowApi(url, authorization(token));
      const open = (state as State | null) ?? (await findOrCreate(api, run, { experiment, runName: runName ?? run.name }, signal));
      return new MlflowSession(api, run, open, traces);
    },
  };
}

/** Number of rollouts to store as traces; set to 0 once the server has refused them, also for later sessions. */
interface TraceSetting {
  count: number;
}

function authorization(token: string | undefined): Readonly<Record<string, string>> {
  if (token !== undefined && token !== "") return { authorization: `Bearer ${token}` };
  const { MLFLOW_TRACKING_USERNAME: user = "", MLFLOW_TRACKING_PASSWORD: password = "" } = process.env;
  return user === "" ? {} : { authorization: `Basic ${Buffer.from(`${user}:${password}`).toString("base64")}` };
}

/** Calls of the REST interface. */
class MlflowApi {
  readonly #url: string;
  readonly #headers: Readonly<Record<string, string>>;

  constructor(url: string, headers: Readonly<Record<string, string>>) {
    this.#url = url;
    this.#headers = headers;
  }

  async post<T>(path: string, body: unknown, signal: AbortSignal): Promise<T> {
    return (await sendToTracker({ url: `${this.#url}/api/2.0/mlflow/${path}`, headers: this.#headers, body, signal })) as T;
  }

  /** Returns the id of an experiment; null if it does not exist. */
  async experimentId(name: string, signal: AbortSignal): Promise<string | null> {
    const url = `${this.#url}/api/2.0/mlflow/experiments/get-by-name?experiment_name=${encodeURIComponent(name)}`;
    try {
      const { experiment } = (await sendToTracker({ url, headers: this.#headers, signal })) as { experiment: { experiment_id: string } };
      return experiment.experiment_id;
    } catch (error) {
      if (error instanceof TrackerResponseError && error.status === 404) return null;
      throw error;
    }
  }

  async traces(request: unknown, { experimentId, runId }: State, signal: AbortSignal): Promise<void> {
    const headers = { ...this.#headers, "x-mlflow-experiment-id": experimentId, "x-mlflow-run-id": runId };
    await sendToTracker({ url: `${this.#url}/v1/traces`, headers, body: request, signal });
  }
}

/** Returns the run with the tag of this run's id, which an earlier start may have created, or creates the run. */
async function findOrCreate(
  api: MlflowApi,
  run: TrackedRun,
  { experiment, runName }: { readonly experiment: string; readonly runName: string },
  signal: AbortSignal,
): Promise<State> {
  const experimentId = (await api.experimentId(experiment, signal)) ?? (await createExperiment(api, experiment, signal));
  const filter = `tags.\`${ID_TAG}\` = '${run.id}'`;
  const search = { experiment_ids: [experimentId], filter, max_results: 1 };
  const found = await api.post<{ runs?: { info: { run_id: string } }[] }>("runs/search", search, signal);
  const known = found.runs?.[0]?.info.run_id;
  if (known !== undefined) return { experimentId, runId: known };
  const tags = [
    { key: ID_TAG, value: run.id },
    { key: "mlflow.source.type", value: "LOCAL" },
    { key: "mlflow.source.name", value: run.runDir },
  ];
  const startTime = await startOf(run);
  const body = { experiment_id: experimentId, run_name: runName, start_time: startTime, tags };
  const created = await api.post<{ run: { info: { run_id: string } } }>("runs/create", body, signal);
  return { experimentId, runId: created.run.info.run_id };
}

async function createExperiment(api: MlflowApi, name: string, signal: AbortSignal): Promise<string> {
  try {
    return (await api.post<{ experiment_id: string }>("experiments/create", { name }, signal)).experiment_id;
  } catch (error) {
    // Another run may have created the experiment meanwhile.
    const known = await api.experimentId(name, signal);
    if (known === null) throw error;
    return known;
  }
}

async function startOf(run: TrackedRun): Promise<number> {
  for await (const { event } of run.events(0)) return Date.parse(event.time);
  return Date.now();
}

/** Open run on the server. */
class MlflowSession implements TrackerSession {
  readonly #api: MlflowApi;
  readonly #run: TrackedRun;
  readonly #state: State;
  readonly #traces: TraceSetting;

  constructor(api: MlflowApi, run: TrackedRun, state: State, traces: TraceSetting) {
    this.#api = api;
    this.#run = run;
    this.#state = state;
    this.#traces = traces;
  }

  async log(events: readonly TrackedEvent[], signal: AbortSignal): Promise<State> {
    const { runId } = this.#state;
    if (events.some(({ event }) => event.type === "run-start")) await this.#logParameters(signal);
    const metrics = events.flatMap(metricsOf);
    for (let from = 0; from < metrics.length; from += MAX_METRICS)
      await this.#api.post("runs/log-batch", { run_id: runId, metrics: metrics.slice(from, from + MAX_METRICS) }, signal);
    for (const event of events) await this.#logRollouts(event, signal);
    const status = events.flatMap(statusOf).at(-1);
    if (status !== undefined) await this.#api.post("runs/update", { run_id: runId, ...status }, signal);
    return this.#state;
  }

  async close(): Promise<void> {}

  async #logParameters(signal: AbortSignal): Promise<void> {
    const all = [...parametersOf(this.#run.config)].map(([key, value]) => ({
      key: keyOf(key),
      value: String(value).slice(0, MAX_PARAMETER_CHARACTERS),
    }));
    for (let from = 0; from < all.length; from += MAX_PARAMETERS)
      await this.#api.post("runs/log-batch", { run_id: this.#state.runId, params: all.slice(from, from + MAX_PARAMETERS) }, signal);
  }

  async #logRollouts(event: TrackedEvent, signal: AbortSignal): Promise<void> {
    const rollouts = await rolloutsOf(this.#run, event, this.#traces.count);
    if (rollouts.length === 0) return;
    const request = otlpRequest(this.#run, rollouts, ({ trajectory }) => {
      const messages = trajectory.messages();
      return {
        "mlflow.spanType": JSON.stringify("AGENT"),
        "mlflow.spanInputs": JSON.stringify({ messages: messages.slice(0, -1) }),
        "mlflow.spanOutputs": JSON.stringify(messages.at(-1) ?? null),
      };
    });
    try {
      await this.#api.traces(request, this.#state, signal);
    } catch (error) {
      if (!(error instanceof TrackerResponseError && NO_TRACES.has(error.status))) throw error;
      this.#traces.count = 0;
      throw new Error(`the server does not accept traces (${error.message}); update the server, or set \`rollouts: 0\``, { cause: error });
    }
  }
}

function metricsOf({ event, step, metrics }: TrackedEvent) {
  const timestamp = Date.parse(event.time);
  return Object.entries(metrics).map(([name, value]) => ({ key: keyOf(name), value, timestamp, step }));
}

/** Returns the status of the run that an event implies. A stopped run is `KILLED`, because it can be resumed. */
function statusOf({ event }: TrackedEvent) {
  const end_time = Date.parse(event.time);
  if (event.type === "run-start" || event.type === "run-resume") return [{ status: "RUNNING" }];
  if (event.type === "run-fail") return [{ status: "FAILED", end_time }];
  return event.type === "run-end" ? [{ status: event.reason === "stopped" ? "KILLED" : "FINISHED", end_time }] : [];
}

/** Replaces the characters that MLflow does not allow in names of metrics and parameters, and empty or relative path components. */
function keyOf(name: string): string {
  const parts = name.split("/").map((part) => part.replaceAll(/[^\w\-. ]/gu, "_").replace(/^\.*$/u, "_"));
  return parts.join("/").slice(0, 250);
}
