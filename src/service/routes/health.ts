/** The routes of the state and the version of the service. */
import { z } from "zod";
import type { WorkerStatus } from "../../engine/port.ts";
import { errorBody, healthReport, serviceVersion, type HealthReport, type ServiceVersion } from "../../base/schema/index.ts";
import type { ServiceRequest } from "../http/body.ts";
import type { ServiceContext } from "./context.ts";
import { packageInfo } from "../common/package-info.ts";
import type { Route } from "../openapi/route.ts";

/** State of the disk with too little free space. */
export const LOW_SPACE: HealthReport["storage"] = {
  state: "low",
  message:
    "Disk space is low: uploads, new models and new jobs are refused with 507, and queued jobs wait. Delete checkpoints, artifacts or jobs that are not needed, or make room on the file system of the data directory",
};

/**
 * Creates `GET /health`: the state of the engine's workers and of the disk, without authentication. Status 503 only if no model can be
 * sampled. `GET /ping` is the same under the name of other servers, and `GET /version` returns the version of the package.
 */
export function healthRoutes({ engine, upstream, space }: Pick<ServiceContext, "engine" | "upstream" | "space">): Route[] {
  const common = { method: "GET", tag: "Service", access: "public", isExtension: true } as const;
  const spec = {
    ...common,
    path: "/health",
    id: "getHealth",
    summary: "Read the state of the service",
    answer: healthReport,
    // An error body during shutdown.
    otherAnswers: { 503: z.union([healthReport, errorBody]) },
  } as const;
  const report = async (c: ServiceRequest) => {
    const workers = engine.workers?.() ?? [];
    const sampling = samplingStatus(workers, { hasUpstream: upstream !== null });
    const isSpaceLow = await space.isLow();
    const status = sampling === "ok" && isSpaceLow ? "degraded" : sampling;
    const body: HealthReport = {
      status,
      workers: workers.map(({ name, state, restarts, restartsInMs }) => ({ name, state, restarts, restarts_in_ms: restartsInMs })),
      devices: (engine.devices?.() ?? []).map(({ name, adapter, weightPrecision = "float32", rolloutPrecision = "float32" }) => ({
        name,
        adapter,
        weight_precision: weightPrecision,
        rollout_precision: rolloutPrecision,
      })),
      storage: isSpaceLow ? LOW_SPACE : { state: "ok", message: null },
    };
    return status === "unavailable" ? c.json(body, 503, { "Retry-After": "1" }) : c.json(body);
  };
  const version: ServiceVersion = { version: packageInfo().version };
  const ping = { path: "/ping", id: "ping", summary: "Read the state of the service, as `GET /health`" };
  const versionSpec = { ...common, path: "/version", id: "getVersion", summary: "Read the version of the service", answer: serviceVersion };
  return [
    { ...spec, handle: report },
    { ...spec, ...ping, handle: report },
    { ...versionSpec, handle: (c) => c.json(version) },
  ];
}

/** Returns the status of sampling: `ok` with all workers, `unavailable` only if no model can be sampled. */
export function samplingStatus(workers: readonly WorkerStatus[], { hasUpstream }: { hasUpstream: boolean }): HealthReport["status"] {
  const isRunning = ({ state }: WorkerStatus) => state === "running";
  if (workers.every(isRunning)) return "ok";
  const samplers = workers.filter(({ role }) => role === "sampler");
  const canSample = hasUpstream || samplers.length === 0 || samplers.some(isRunning);
  return canSample ? "degraded" : "unavailable";
}
