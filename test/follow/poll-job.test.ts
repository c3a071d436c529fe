import { describe, expect, it, vi } from "vitest";
import { toArray, lastValueFrom, type Observable } from "rxjs";
import { ConnectionError, HttpError, type JobEvent, type TrainingJobInfo } from "../../src/library/client/index.ts";
import { pollJob, type JobSource, type PollJobOptions } from "../../src/library/follow/index.ts";
import { iterate } from "../../src/library/follow/rx.ts";
import type { Checkpoint, JobEvent as WireJobEvent, JobEventList } from "../../src/base/schema/index.ts";

const JOB = "00000000-0000-4000-8000-0000000000ff";
const id = (n: number) => `00000000-0000-4000-8000-${String(n).padStart(12, "0")}`;
const started: WireJobEvent = { id: id(1), type: "training_started", data: { num_sequences: 2 } };
const gradient: WireJobEvent = { id: id(2), type: "gradient_step", data: { loss: 0.5, note: "x" } };
const ended: WireJobEvent = { id: id(3), type: "training_ended", data: { step: 4 } };
const failed: WireJobEvent = { id: id(3), type: "training_failed", data: { error_message: "out of luck" } };
const cancelled: WireJobEvent = { id: id(3), type: "training_cancelled", data: {} };

const page = (...data: WireJobEvent[]): JobEventList => ({
  object: "list",
  data,
  first_id: data[0]?.id ?? null,
  last_id: data.at(-1)?.id ?? null,
  has_more: false,
});
const info = (facts: Partial<TrainingJobInfo>): TrainingJobInfo => ({
  id: JOB,
  modelId: null,
  type: null,
  status: null,
  createdAt: null,
  trainingStart: null,
  trainingEnd: null,
  errorMessage: null,
  step: null,
  ...facts,
});

interface Script {
  readonly events?: readonly (JobEventList | Error)[];
  readonly jobs?: readonly (TrainingJobInfo | Error)[];
  readonly checkpoints?: readonly Checkpoint[][];
}

/** Returns a source that answers from a script and repeats the last answer. */
function scripted({ events = [], jobs = [], checkpoints = [] }: Script) {
  const next = <T>(answers: readonly (T | Error)[], calls: number): Promise<T> => {
    const answer = answers[Math.min(calls, answers.length - 1)];
    return answer instanceof Error
      ? Promise.reject(answer)
      : answer === undefined
        ? Promise.reject(new Error("not scripted"))
        : Promise.resolve(answer);
  };
  const calls = { events: [] as object[], jobs: 0, checkpoints: 0 };
  const signals: AbortSignal[] = [];
  const source = {
    features: { jobEvents: undefined as boolean | undefined },
    trainingJobs: {
      events: (_: string, options: { signal?: AbortSignal; after?: string; waitSeconds?: number }) => {
        const { signal, ...rest } = options;
        if (signal !== undefined) signals.push(signal);
        calls.events.push(rest);
        return next(events, calls.events.length - 1);
      },
      get: () => next(jobs, calls.jobs++),
    },
    checkpoints: { list: () => next(checkpoints, calls.checkpoints++) },
  };
  return { source: source as unknown as JobSource, calls, signals, features: source.features };
}

const fast: PollJobOptions = { intervalMs: 1 };
const all = (source: Observable<JobEvent>) => lastValueFrom(source.pipe(toArray()));

/** Collects all events, and the error if there is one. */
async function follow(source: Observable<JobEvent>): Promise<{ events: JobEvent[]; error: unknown }> {
  const events: JobEvent[] = [];
  try {
    for await (const event of iterate(source)) events.push(event);
    return { events, error: null };
  } catch (error) {
    return { events, error };
  }
}

const http = (status: number, retryable = false) => new HttpError(`answered ${status}`, { status, retryable });

describe("pollJob over the events route", () => {
  it("pages with the cursor, requests long polls, and completes at the last event", async () => {
    const { source, calls, features } = scripted({ events: [page(started), page(), page(gradient, ended)] });
    await expect(all(pollJob(source, JOB, fast))).resolves.toEqual([
      { type: "training-started", id: id(1), gradientSteps: 2 },
      { type: "gradient-step", id: id(2), metrics: { loss: 0.5 } },
      { type: "training-ended", id: id(3), step: 4, metrics: { step: 4 } },
    ]);
    expect(calls.events).toEqual([
      { after: undefined, waitSeconds: 20 },
      { after: id(1), waitSeconds: 20 },
      { after: id(1), waitSeconds: 20 },
    ]);
    expect(features.jobEvents).toBe(true);
  });

  it.each([
    [failed, "E_JOB_FAILED", /out of luck/, "training-failed"],
    [cancelled, "E_JOB_CANCELLED", /cancelled/, "training-cancelled"],
    [{ ...failed, data: { error_message: "cancelled", cancelled: true } }, "E_JOB_CANCELLED", /cancelled/, "training-cancelled"],
  ] as const)("emits the event of a failed or cancelled job, then errors (%#)", async (event, code, message, type) => {
    const { source } = scripted({ events: [page(started, event)] });
    const { events, error } = await follow(pollJob(source, JOB, fast));
    expect(events.at(-1)?.type).toBe(type);
    expect(error).toMatchObject({ code, jobId: JOB, message: expect.stringMatching(message) });
  });

  it("retries transient failures and continues at the cursor", async () => {
    vi.useFakeTimers();
    try {
      const { source, calls } = scripted({ events: [page(started), http(503, true), new ConnectionError("reset"), page(ended)] });
      const done = all(pollJob(source, JOB, fast));
      await vi.runAllTimersAsync();
      expect((await done).map(({ type }) => type)).toEqual(["training-started", "training-ended"]);
      expect(calls.events).toHaveLength(4);
      expect(calls.events.at(-1)).toMatchObject({ after: id(1) });
      expect(vi.getTimerCount()).toBe(0);
    } finally {
      vi.useRealTimers();
    }
  });

  it("errors after `maxFailures` failures in a row", async () => {
    vi.useFakeTimers();
    try {
      const { source, calls } = scripted({ events: [http(503, true)] });
      const ending = follow(pollJob(source, JOB, { ...fast, maxFailures: 2 }));
      await vi.runAllTimersAsync();
      expect((await ending).error).toMatchObject({ status: 503 });
      expect(calls.events).toHaveLength(3);
    } finally {
      vi.useRealTimers();
    }
  });

  it("stops requesting long polls if the service rejects them", async () => {
    const { source, calls } = scripted({ events: [http(422), page(ended)] });
    await all(pollJob(source, JOB, fast));
    expect(calls.events).toEqual([{ after: undefined, waitSeconds: 20 }, { after: undefined }]);
  });

  it("errors for an unknown job, whether or not the service is known to have the events route", async () => {
    const known = scripted({ events: [http(404)] });
    known.features.jobEvents = true;
    expect((await follow(pollJob(known.source, JOB, fast))).error).toMatchObject({ status: 404 });
    const unknown = scripted({ events: [http(404)], jobs: [http(404)] });
    expect((await follow(pollJob(unknown.source, JOB, fast))).error).toMatchObject({ status: 404 });
    expect(unknown.features.jobEvents).toBeUndefined();
  });

  it("ends with the signal's reason and aborts the running request", async () => {
    const controller = new AbortController();
    const reason = new Error("enough");
    const { source, signals } = scripted({ events: [page(started), page()] });
    const ending = follow(pollJob(source, JOB, { ...fast, signal: controller.signal }));
    await expect.poll(() => signals.length).toBeGreaterThan(1);
    controller.abort(reason);
    expect((await ending).error).toBe(reason);
    const seen = signals.length;
    await new Promise((resolve) => setTimeout(resolve, 10));
    expect(signals.length).toBe(seen);
    const aborted = scripted({ events: [page()] });
    expect((await follow(pollJob(aborted.source, JOB, { signal: controller.signal }))).error).toBe(reason);
    expect(aborted.calls.events).toEqual([]);
  });

  it("errors with JobTimeoutError if the job does not end in time", async () => {
    vi.useFakeTimers();
    try {
      const { source } = scripted({ events: [page()] });
      const ending = follow(pollJob(source, JOB, { timeoutMs: 5000 }));
      await vi.advanceTimersByTimeAsync(5000);
      expect((await ending).error).toMatchObject({ code: "E_JOB_TIMEOUT", jobId: JOB });
      expect(vi.getTimerCount()).toBe(0);
    } finally {
      vi.useRealTimers();
    }
  });

  it("stops polling if the caller leaves the loop", async () => {
    const { source, calls } = scripted({ events: [page(started), page()] });
    for await (const event of iterate(pollJob(source, JOB, fast))) {
      expect(event.type).toBe("training-started");
      break;
    }
    const seen = calls.events.length;
    await new Promise((resolve) => setTimeout(resolve, 10));
    expect(calls.events.length).toBe(seen);
  });
});

describe("pollJob without an events route", () => {
  const missing = [http(404)];

  it("follows the job status", async () => {
    const { source, features, calls } = scripted({
      events: missing,
      jobs: [info({ status: "queued" }), info({ status: "running" }), info({ status: "running" }), info({ status: "succeeded", step: 2 })],
    });
    await expect(all(pollJob(source, JOB, fast))).resolves.toEqual([
      { type: "training-started", id: null, gradientSteps: null },
      { type: "training-ended", id: null, step: 2, metrics: {} },
    ]);
    expect(features.jobEvents).toBe(false);
    await all(pollJob(source, JOB, fast));
    expect(calls.events).toHaveLength(1);
  });

  it.each([
    ["failed", "E_JOB_FAILED"],
    ["cancelled", "E_JOB_CANCELLED"],
  ] as const)("errors when the status is %s", async (status, code) => {
    const { source } = scripted({ events: [http(405)], jobs: [info({ status, errorMessage: "out of luck" })] });
    expect((await follow(pollJob(source, JOB, fast))).error).toMatchObject({ code });
  });

  it("follows the checkpoints if there is no job status either", async () => {
    const checkpoint = (step: number): Checkpoint => ({ id: id(step), step, metrics: { loss: step } });
    const { source } = scripted({ events: missing, jobs: [info({})], checkpoints: [[checkpoint(3)], [checkpoint(3)], [checkpoint(4)]] });
    await expect(all(pollJob(source, JOB, { ...fast, baseline: { modelId: "m", step: 3 } }))).resolves.toEqual([
      { type: "training-ended", id: null, step: 4, metrics: { loss: 4 } },
    ]);
  });

  it("reports the required routes if it cannot determine the end", async () => {
    const { source } = scripted({ events: missing, jobs: [info({})] });
    expect((await follow(pollJob(source, JOB, fast))).error).toMatchObject({
      code: "E_UNSUPPORTED",
      message: expect.stringContaining("baseline") as string,
    });
  });
});
