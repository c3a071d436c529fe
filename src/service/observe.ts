/** Composition of the observers of a service: the hook of its options, metrics and traces. */
import { activeTracing } from "../base/util/tracing.ts";
import type { Engine } from "../engine/port.ts";
import { packageInfo } from "./common/package-info.ts";
import type { DiskSpace } from "./disk/space.ts";
import { createMetrics, type ServiceMetrics } from "./observability/metrics.ts";
import { joinObservers, type RequestRecord, type ServiceObserver } from "./observability/observer.ts";
import { traceObserver } from "./observability/traces.ts";
import { countJobs } from "./store/jobs.ts";
import { countModels } from "./store/models.ts";
import type { Store } from "./store/tables.ts";

/** Parts of a service that observers read. */
interface ObservedParts {
  readonly store: Store;
  readonly engine: Engine;
  readonly space: Pick<DiskSpace, "freeBytes">;
  readonly minFreeBytes: number;
  readonly runningRequests: () => number;
}

/** Subscriptions to the events of a service. */
interface Subscriptions {
  /** Whether metrics are collected. */
  readonly metrics?: boolean | undefined;
  readonly onRequest?: ((record: RequestRecord) => void) | undefined;
}

/** Observers of a service. */
export interface Observation {
  readonly observer: ServiceObserver;
  /** Metrics; null if they are off. */
  readonly metrics: ServiceMetrics | null;
}

/**
 * Creates the observers of a service.
 *
 * @param redact - Removes secrets from the path of a request.
 * @throws ConfigError `E_CONFIG` if the package of the metrics is missing.
 */
export async function createObservation(
  { store, engine, space, minFreeBytes, runningRequests }: ObservedParts,
  { metrics: hasMetrics = false, onRequest }: Subscriptions,
  redact: (text: string) => string,
): Promise<Observation> {
  const metrics = hasMetrics
    ? await createMetrics({
        version: packageInfo().version,
        runningRequests,
        jobs: () => countJobs(store),
        stored: () => countModels(store),
        freeBytes: () => space.freeBytes(),
        requiredFreeBytes: minFreeBytes,
        workers: () => engine.workers?.() ?? [],
      })
    : null;
  const observers: ServiceObserver[] = [];
  // A path may contain a pasted key.
  if (onRequest !== undefined) observers.push({ requestAnswered: (record) => onRequest({ ...record, path: redact(record.path) }) });
  if (metrics !== null) observers.push(metrics.observer);
  const tracing = activeTracing();
  if (tracing !== null) observers.push(traceObserver(tracing));
  return { observer: joinObservers(observers), metrics };
}
