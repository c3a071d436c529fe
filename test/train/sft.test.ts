import { describe, expect, it } from "vitest";
import { uploadDataset } from "../../src/library/dataset/index.ts";
import { trainSft, type TrainSftOptions } from "../../src/training/train/index.ts";
import { environment, readLines, recorded, setUp, type Scenario, type SetUp } from "./support.ts";

const examples = (from: number, count: number) =>
  Array.from({ length: count }, (_, index) => ({
    messages: [
      { role: "user", content: `hello ${from + index}` },
      { role: "assistant", content: `world ${from + index}` },
    ],
  }));

const upload = ({ service }: SetUp, job: number) =>
  uploadDataset(service, { project: "demo", name: "examples", train: examples(job * 4, 4) });

function start(given: SetUp, options: Partial<TrainSftOptions<Scenario>> = {}) {
  const { model, runDir } = given;
  return trainSft<Scenario>({
    model,
    runDir,
    data: (job) => upload(given, job),
    jobs: 3,
    train: { batchSize: 2 },
    report: false,
    ...options,
  });
}

describe("trainSft", () => {
  it("measures the loss on the validation half of an upload, also when it resumes with the recorded dataset", async () => {
    const given = await setUp();
    const { service } = given;
    const both = () => uploadDataset(service, { project: "demo", name: "both", train: examples(0, 4), validation: examples(4, 2) });
    const controller = new AbortController();
    const cut = start(given, { data: both, jobs: 1, signal: controller.signal });
    cut.events$.subscribe({ next: ({ type }) => type === "data-end" && controller.abort(new Error("cut")), error: () => undefined });
    await expect(cut.done).rejects.toThrow("cut");
    await start(given, { data: () => Promise.reject(new Error("uploaded twice")), jobs: 1 }).done;
    const [row] = await readLines(given.runDir, "metrics.jsonl");
    expect(row).toHaveProperty(["validation/loss"]);
  });

  it("runs one job per dataset and keeps every gradient step", async () => {
    const given = await setUp();
    const data = await upload(given, 0);
    const run = start(given, { data, jobs: undefined, train: { batchSize: 2, epochs: 3 } });
    const events = await recorded(run);
    expect(events.map(({ type }) => type)).toEqual([
      "run-start",
      "step-start",
      "data-end",
      "job-intent",
      "job-start",
      ...Array.from({ length: 6 }, () => "gradient-step"),
      "step-end",
      "run-end",
    ]);
    const [row] = await readLines(given.runDir, "metrics.jsonl");
    expect(row).toMatchObject({ step: 0, split: "train", policy_step: null, checkpoint_step: 1, gradient_steps: 6 });
    const losses = events.flatMap((event) => (event.type === "gradient-step" ? [event.metrics["loss"] as number] : []));
    expect(row.loss).toBeCloseTo(losses.reduce((a, b) => a + b) / 6, 12);
    expect(row.last_loss).toBe(losses.at(-1));
  });

  it("creates each dataset before its job, evaluates after jobs, and stops with `stopWhen`", async () => {
    const given = await setUp();
    const made: number[] = [];
    const run = start(given, {
      data: (job) => {
        made.push(job);
        return upload(given, job);
      },
      jobs: 9,
      environment,
      evaluation: { every: 1 },
      stopWhen: ({ step, evaluation }) => step === 1 && evaluation !== null,
    });
    await expect(run.done).resolves.toMatchObject({ reason: "early-stop", steps: 2, checkpointStep: 2 });
    expect(made).toEqual([0, 1]);
    const rows = await readLines(given.runDir, "metrics.jsonl");
    expect(rows.filter(({ split }) => split === "eval").map(({ step }) => step)).toEqual([0, 1, 2]);
  });

  it("resumes after an abort with the same dataset and job", async () => {
    const given = await setUp();
    const made: number[] = [];
    const data = (job: number) => {
      made.push(job);
      return upload(given, job);
    };
    for (const type of ["data-end", "job-intent", "gradient-step", "step-end"]) {
      const controller = new AbortController();
      const run = start(given, { data, signal: controller.signal });
      const known = made.length === 0 ? 0 : (await readLines(given.runDir, "events.jsonl")).length;
      run.events$.subscribe({
        next: (event) => {
          if (event.seq !== null && event.seq >= known && event.type === type) controller.abort(new Error("cut"));
        },
        error: () => undefined,
      });
      await run.done.catch((error: Error) => expect(error.message).toBe("cut"));
    }
    await expect(start(given, { data }).done).resolves.toMatchObject({ steps: 3, checkpointStep: 3 });
    expect(made).toEqual([0, 1, 2]);
    const jobs = (await readLines(given.runDir, "events.jsonl"))
      .filter(({ type }) => type === "job-start")
      .map(({ job_id }) => job_id as string);
    expect(new Set(jobs).size).toBe(3);
    await expect(given.model.step()).resolves.toBe(3);
  });

  it.each([
    [{ jobs: undefined }, "jobs"],
    [{ data: "artifact:///a/b/c:v0" }, "jobs"],
    [{ data: [], jobs: undefined }, "data"],
    [{ evaluation: {} }, "environment"],
  ] as const)("rejects %j", async (options, param) => {
    const given = await setUp();
    expect(() => start(given, options as object)).toThrow(expect.objectContaining({ code: "E_ARGUMENT", param }) as Error);
  });
});
