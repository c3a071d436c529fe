import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import type { Worker } from "node:worker_threads";
import { expect, onTestFinished, test } from "vitest";
import { createOnnxEngine, type Engine, type PolicyVersion, type Row, type SamplingParams } from "../../../../src/engine/index.ts";
import { restartDelayMs } from "../../../../src/engine/onnx/threads/supervised-worker.ts";
import { Trainer } from "../../../../src/engine/onnx/train/trainer.ts";
import { ROOT } from "../../../project/files.ts";
import { HelperThread } from "../../../../src/engine/onnx/threads/helper-thread.ts";

const TINY = join(ROOT, "models/whetstone-tiny");
const DEADLINE_MS = 60_000;

/** Threads started by the test, in the order of their start. */
function startedWorkers(): readonly Worker[] {
  const workers: Worker[] = [];
  const onWorker = (worker: Worker) => workers.push(worker);
  process.on("worker", onWorker);
  onTestFinished(() => void process.off("worker", onWorker));
  return workers;
}

/** Raises an exception in a thread: no message of the engine is null, so that its listener throws. */
const crash = (worker: Worker) => worker.postMessage(null);

async function until(isTrue: () => boolean): Promise<void> {
  for (const deadline = Date.now() + DEADLINE_MS; !isTrue(); await delay(5)) if (Date.now() > deadline) throw new Error("Not in time");
}

const params: SamplingParams = { maxTokens: 500, temperature: 1, topP: 1, topK: 0, seed: 7n, stopTokenIds: [], topLogprobs: 0 };

/** Samples into `ids`, which a test can watch. */
async function sample(engine: Engine, policy: PolicyVersion, ids: number[] = []): Promise<number[]> {
  for await (const { id } of engine.sample(policy, Int32Array.of(1, 2, 3), params)) ids.push(id);
  return ids;
}

test("the delay of a restart doubles from 0.1 s to 30 s", () => {
  expect([1, 2, 3, 9, 10, 1000].map(restartDelayMs)).toEqual([100, 200, 400, 25_600, 30_000, 30_000]);
});

test("the death of one of two samplers does not change the requests of the other", async () => {
  const workers = startedWorkers();
  const deaths: string[] = [];
  const options = { baseModels: { tiny: TINY }, samplers: 2, onWorkerDeath: ({ worker }: { worker: string }) => void deaths.push(worker) };
  const engine = await createOnnxEngine(options);
  onTestFinished(() => engine.close());
  const policy = await engine.loadPolicy({ base: "tiny" });
  const expected = await sample(engine, policy);
  // Two requests at once run on different threads.
  const seen: number[][] = [[], []];
  const running = seen.map((ids) => sample(engine, policy, ids));
  await until(() => seen.every((ids) => ids.length > 0));
  crash(workers[0]!);
  const [first, second] = await Promise.allSettled(running);
  expect(first).toMatchObject({ status: "rejected", reason: { code: "E_UNAVAILABLE", retryable: true } });
  expect(second).toEqual({ status: "fulfilled", value: expected });
  expect(deaths).toEqual(["sampler-0"]);

  await until(() => engine.workers!()[0]!.restarts === 1);
  expect(engine.holds!(policy)).toBe(false);
  // The remaining sampler serves the policy until its release, and loading it again fills both threads.
  expect(await sample(engine, policy)).toEqual(expected);
  const again = await engine.loadPolicy({ base: "tiny" });
  expect(engine.holds!(again)).toBe(true);
  await engine.release(policy);
  expect(await Promise.all([sample(engine, again), sample(engine, again)])).toEqual([expected, expected]);
});

test("models of a dead trainer are lost and can be unloaded; new models wait for the restart", async () => {
  const workers = startedWorkers();
  const engine = await createOnnxEngine({ baseModels: { tiny: TINY }, samplers: 1 });
  onTestFinished(() => engine.close());
  const model = await engine.createModel({ base: "tiny", seed: 1 });
  expect(engine.holds!(model)).toBe(true);
  crash(workers[1]!);
  await until(() => !engine.holds!(model));
  await expect(engine.forward(model, [])).rejects.toMatchObject({ code: "E_UNAVAILABLE" });
  const aborted = new AbortController();
  const waiting = engine.createModel({ base: "tiny", seed: 1 }, { signal: aborted.signal });
  aborted.abort();
  await expect(waiting).rejects.toThrow(expect.objectContaining({ name: "AbortError" }));
  const next = await engine.createModel({ base: "tiny", seed: 1 });
  expect(next.id).not.toBe(model.id);
  await engine.unload(model);
  expect(engine.holds!(next)).toBe(true);
  await expect(engine.forward(model, [])).rejects.toMatchObject({ code: "E_UNAVAILABLE" });
});

test("the death of the helper thread fails the call without changing gradients; the next call has a new helper", async () => {
  const workers = startedWorkers();
  const deaths: Error[] = [];
  const trainer = new Trainer({
    threads: 2,
    startHelper: (onDeath) =>
      new HelperThread({ niceness: 0 }, (error) => {
        deaths.push(error);
        onDeath();
      }),
  });
  const id = await trainer.createModel({ id: "tiny", directory: TINY }, { seed: 1 });
  const rows = Array.from({ length: 12 }, (_, index): Row => {
    const tokens = Int32Array.from({ length: 60 }, (__, t) => (index * 31 + t * 17) % 300);
    return { tokens, weights: new Float32Array(60).fill(1 / 500, 1) };
  });
  const { signal } = new AbortController();
  const run = () => trainer.forwardBackward(id, rows, { kind: "cross-entropy" }, signal);
  const expected = (await run()).logprobs;
  const before = trainer.gradients(id);
  const dying = run();
  crash(workers[0]!);
  await expect(dying).rejects.toMatchObject({ code: "E_UNAVAILABLE", retryable: true });
  expect(deaths).toHaveLength(1);
  expect(trainer.gradients(id)).toEqual(before);
  expect((await run()).logprobs).toEqual(expected);
  expect(workers).toHaveLength(2);
  for (const worker of workers) worker.unref();
});
