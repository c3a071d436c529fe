/** Metrics of training jobs. */
import type { Registry } from "prom-client";
import type { PromClient } from "./prom-client.ts";
import type { ServiceObserver } from "./observer.ts";

/** Bounds of the duration of an optimizer step, in seconds. */
const STEP_SECONDS = [0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600];
/** Bounds of the duration of a run of a job, in seconds. */
const JOB_SECONDS = [0.1, 0.5, 1, 5, 10, 30, 60, 300, 900, 3600, 4 * 3600, 24 * 3600];

/** Creates the metrics of training jobs. Returns the function that observes a run of a job. */
export function createJobMetrics(client: PromClient, registers: Registry[]): NonNullable<ServiceObserver["jobStarted"]> {
  const labelNames = ["type", "entity"] as const;
  const runs = new client.Counter({
    name: "whetstone_job_runs_total",
    help: "Ended runs of training jobs. A job that is paused or interrupted has several runs.",
    labelNames: [...labelNames, "outcome"],
    registers,
  });
  const steps = new client.Counter({ name: "whetstone_job_steps_total", help: "Optimizer steps.", labelNames, registers });
  const tokens = new client.Counter({
    name: "whetstone_job_trained_tokens_total",
    help: "Tokens with a loss in optimizer steps.",
    labelNames,
    registers,
  });
  const stepSeconds = new client.Histogram({
    name: "whetstone_job_step_duration_seconds",
    help: "Time between the ends of two optimizer steps of a run; for the first one, since the start of the run.",
    labelNames: ["type"],
    buckets: STEP_SECONDS,
    registers,
  });
  const jobSeconds = new client.Histogram({
    name: "whetstone_job_duration_seconds",
    help: "Duration of the runs of training jobs.",
    labelNames: ["type"],
    buckets: JOB_SECONDS,
    registers,
  });
  return ({ type, entity }) => {
    const startedMs = performance.now();
    let previousStepMs = startedMs;
    return {
      step(metrics) {
        const nowMs = performance.now();
        steps.inc({ type, entity });
        tokens.inc({ type, entity }, countIn(metrics, "num_trainable_tokens"));
        stepSeconds.observe({ type }, (nowMs - previousStepMs) / 1000);
        previousStepMs = nowMs;
      },
      ended(outcome) {
        runs.inc({ type, entity, outcome });
        jobSeconds.observe({ type }, (performance.now() - startedMs) / 1000);
      },
    };
  };
}

/** Returns a metric of a step that counts tokens; 0 if the step does not report it. */
function countIn(metrics: Readonly<Record<string, unknown>>, name: string): number {
  const value = metrics[name];
  return typeof value === "number" && value > 0 ? value : 0;
}
