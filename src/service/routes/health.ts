import { z } from "zod";
import type { WorkerStatus } from "../../engine/port.ts";
import { errorBody, healthReport, type HealthReport } from "../../schema/index.ts";
import type { ServiceContext } from "../context.ts";
import { route, type Route } from "../openapi/route.ts";

const LOW_SPACE: HealthReport["storage"] = {
  state: "low",
  message:
    "Disk space is low: uploads, new models and new jobs are refused with 507, and queued jobs wait. Delete checkpoints, artifacts or jobs that are not needed, or make room on the file system of the data directory",
};

/**
 * Creates `GET /health`: the state of the engine's workers and of the disk, without authentication. Status 503 only if no model can be
 * sampled.
 */
export function healthRoutes({ engine, upstream, space }: Pick<ServiceContext, "engine" | "upstream" | "space">): Route[] {
  const spec = {
    method: "GET",
    path: "/health",
    id: "getHealth",
    tag: "Service",
    summary: "Read the state of the service",
    isPublic: true,
    isExtension: true,
    answer: healthReport,
    // An error body during shutdown.
    otherAnswers: { 503: z.union([healthReport, errorBody]) },
  } as const;
  const health = route(spec, async (c) => {
    const workers = engine.workers?.() ?? [];
    const sampling = statusOf(workers, upstream !== null);
    const isLow = await space.isLow();
    const status = sampling === "ok" && isLow ? "degraded" : sampling;
    const report: HealthReport = {
      status,
      workers: workers.map(({ name, state, restarts, restartsInMs }) => ({ name, state, restarts, restarts_in_ms: restartsInMs })),
      devices: (engine.devices?.() ?? []).map(({ name, adapter, weightPrecision = "float32" }) => ({
        name,
        adapter,
        weight_precision: weightPrecision,
      })),
      storage: isLow ? LOW_SPACE : { state: "ok", message: null },
    };
    return c.json(report, status === "unavailable" ? 503 : 200, status === "unavailable" ? { "Retry-After": "1" } : {});
  });
  return [health];
}

function statusOf(workers: readonly WorkerStatus[], hasUpstream: boolean): HealthReport["status"] {
  const isRunning = ({ state }: WorkerStatus) => state === "running";
  if (workers.every(isRunning)) return "ok";
  const samplers = workers.filter(({ role }) => role === "sampler");
  return hasUpstream || samplers.length === 0 || samplers.some(isRunning) ? "degraded" : "unavailable";
}
