import { Hono } from "hono";
import type { WorkerStatus } from "../../engine/port.ts";
import type { HealthReport } from "../../schema/index.ts";
import type { ServiceEnvironment } from "../body.ts";
import type { ServiceContext } from "../context.ts";

/** `GET /health`: the state of the engine's workers, without a key. Status 503 only while nothing can be sampled. */
export function healthRoutes({ engine, upstream }: Pick<ServiceContext, "engine" | "upstream">): Hono<ServiceEnvironment> {
  return new Hono<ServiceEnvironment>().get("/health", (c) => {
    const workers = engine.workers?.() ?? [];
    const status = statusOf(workers, upstream !== null);
    const report: HealthReport = {
      status,
      workers: workers.map(({ name, state, restarts, restartsInMs }) => ({ name, state, restarts, restarts_in_ms: restartsInMs })),
    };
    return c.json(report, status === "unavailable" ? 503 : 200, status === "unavailable" ? { "Retry-After": "1" } : {});
  });
}

function statusOf(workers: readonly WorkerStatus[], hasUpstream: boolean): HealthReport["status"] {
  const isRunning = ({ state }: WorkerStatus) => state === "running";
  if (workers.every(isRunning)) return "ok";
  const samplers = workers.filter(({ role }) => role === "sampler");
  return hasUpstream || samplers.length === 0 || samplers.some(isRunning) ? "degraded" : "unavailable";
}
