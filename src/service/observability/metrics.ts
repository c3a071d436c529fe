/** Metrics of the service in the text format of Prometheus. prom-client is an optional package, loaded only with metrics switched on. */
import type { Gauge, Registry } from "prom-client";
import { createChatMetrics } from "./chat-metrics.ts";
import { createJobMetrics } from "./job-metrics.ts";
import type { ServiceObserver } from "./observer.ts";
import { loadPromClient, type PromClient } from "./prom-client.ts";

/** Values that are read when the metrics are requested. */
export interface MetricSources {
  /** Version of the package. */
  readonly version: string;
  /** Returns the number of requests without a complete response. */
  readonly runningRequests: () => number;
  /** Returns the number of jobs by status. */
  readonly jobs: () => Promise<Readonly<Record<string, number>>>;
  /** Returns the number of models and checkpoints by entity. */
  readonly stored: () => Promise<readonly { readonly entity: string; readonly models: number; readonly checkpoints: number }[]>;
  /** Returns the free bytes of the data directory's file system; null if unknown. */
  readonly freeBytes: () => Promise<number | null>;
  /** Bytes that must stay free. */
  readonly requiredFreeBytes: number;
  /** Returns the states of the engine's workers. */
  readonly workers: () => readonly { readonly name: string; readonly state: string; readonly restarts: number }[];
}

/** Metrics of a service. */
export interface ServiceMetrics {
  readonly observer: ServiceObserver;
  /** Value of `Content-Type` for {@link text}. */
  readonly contentType: string;
  /** Returns all metrics as text. */
  text(): Promise<string>;
  /** Removes all metrics. */
  close(): void;
}

/** Bounds of a request's duration until the headers of its response, in seconds. */
const REQUEST_SECONDS = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300];

/**
 * Creates the metrics of a service. Labels have few values: patterns of routes instead of paths, base models instead of models, and the
 * entities of keys.
 *
 * @throws ConfigError `E_CONFIG` if prom-client is not installed.
 */
export async function createMetrics(sources: MetricSources): Promise<ServiceMetrics> {
  const client = await loadPromClient();
  const registry = new client.Registry();
  const registers = [registry];
  client.collectDefaultMetrics({ register: registry });
  createGauges(client, registry, sources);
  const requests = new client.Counter({
    name: "whetstone_http_requests_total",
    help: "Answered requests.",
    labelNames: ["method", "route", "status", "entity"],
    registers,
  });
  const seconds = new client.Histogram({
    name: "whetstone_http_request_duration_seconds",
    help: "Time until the headers of the response.",
    labelNames: ["method", "route"],
    buckets: REQUEST_SECONDS,
    registers,
  });
  return {
    observer: {
      requestAnswered({ method, route, status, entity, durationMs }) {
        requests.inc({ method, route, status, entity });
        seconds.observe({ method, route }, durationMs / 1000);
      },
      chatStarted: createChatMetrics(client, registers),
      jobStarted: createJobMetrics(client, registers),
    },
    contentType: registry.contentType,
    text: () => registry.metrics(),
    close: () => registry.clear(),
  };
}

/** Creates the gauges, and the counter of restarts, with values that are read from the sources when the metrics are requested. */
function createGauges(client: PromClient, registry: Registry, sources: MetricSources): void {
  const registers = [registry];
  const addGauge = <T extends string>(name: string, help: string, labelNames: readonly T[], read: (gauge: Gauge<T>) => unknown): void => {
    new client.Gauge<T>({
      name,
      help,
      labelNames,
      registers,
      async collect() {
        this.reset();
        await read(this);
      },
    });
  };
  addGauge("whetstone_build_info", "Constant 1, with the version of the package.", ["version"], (gauge) =>
    gauge.set({ version: sources.version }, 1),
  );
  addGauge("whetstone_http_requests_running", "Requests without a complete response.", [], (gauge) => gauge.set(sources.runningRequests()));
  addGauge("whetstone_jobs", "Training jobs that the service keeps, by status.", ["status"], async (gauge) => {
    for (const [status, count] of Object.entries(await sources.jobs())) gauge.set({ status }, count);
  });
  addGauge("whetstone_models", "Models, by owner.", ["entity"], async (gauge) => {
    for (const { entity, models } of await sources.stored()) gauge.set({ entity }, models);
  });
  addGauge("whetstone_checkpoints", "Checkpoints, by owner of the model.", ["entity"], async (gauge) => {
    for (const { entity, checkpoints } of await sources.stored()) gauge.set({ entity }, checkpoints);
  });
  addGauge("whetstone_disk_free_bytes", "Bytes that are free on the file system of the data directory.", [], async (gauge) => {
    const free = await sources.freeBytes();
    if (free !== null) gauge.set(free);
  });
  addGauge("whetstone_disk_required_free_bytes", "Bytes that must stay free; below, new work is rejected.", [], (gauge) =>
    gauge.set(sources.requiredFreeBytes),
  );
  addGauge("whetstone_engine_worker_up", "1 for a running worker of the engine, 0 for a restarting one.", ["worker"], (gauge) => {
    for (const { name, state } of sources.workers()) gauge.set({ worker: name }, state === "running" ? 1 : 0);
  });
  new client.Counter({
    name: "whetstone_engine_worker_restarts_total",
    help: "Replacements of a worker of the engine.",
    labelNames: ["worker"],
    registers,
    collect() {
      this.reset();
      for (const { name, restarts } of sources.workers()) this.inc({ worker: name }, restarts);
    },
  });
}
