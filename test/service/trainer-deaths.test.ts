import { expect, test } from "vitest";
import { UnavailableError } from "../../src/base/errors.ts";
import { deferred } from "../../src/base/util/deferred.ts";
import type { ScriptedEngineOptions } from "../../src/testing/index.ts";
import { createModel, finishedEvents, RL_JOBS, startRlJob, startSftJob, startTestService } from "./support.ts";

/** Options of an engine with a trainer that dies in the selected optimizer steps, numbered from 1 over all jobs and attempts. */
function dyingIn(isDeadly: (step: number) => boolean): ScriptedEngineOptions {
  let steps = 0;
  return {
    async before({ verb }) {
      if (verb === "optimStep" && isDeadly(++steps)) throw new UnavailableError("An engine worker died: out of memory");
    },
  };
}

test("resumes a job from its last committed step after the trainer died, without duplicate events", async () => {
  const service = await startTestService({ engine: dyingIn((step) => step === 6), limits: { commitEverySteps: 4 } });
  const { id } = await createModel(service);
  const jobId = await startSftJob(service, id, 8, { config: { batch_size: 1, learning_rate: 0.1 } });
  const events = await finishedEvents(service, jobId);
  expect(events.map(({ type, data }) => (type === "gradient_step" ? data.gradient_step : type))).toEqual([
    "training_started",
    ...[1, 2, 3, 4, 5, 6, 7, 8],
    "training_ended",
  ]);
  // Steps 1 to 5, the one that died, and 5 to 8 from the commit after step 4.
  expect(service.engine.calls.filter(({ verb }) => verb === "optimStep")).toHaveLength(10);
});

test("fails only the job in which the trainer dies repeatedly, and runs queued jobs in order", async () => {
  const service = await startTestService({ engine: dyingIn((step) => step <= 3), limits: { maxJobAttempts: 3 } });
  const { id } = await createModel(service);
  const jobs = [await startRlJob(service, id), await startRlJob(service, id), await startRlJob(service, id)];
  expect((await finishedEvents(service, jobs[0]!)).at(-1)).toMatchObject({
    type: "training_failed",
    data: { error_message: expect.stringMatching(/died 3 times.*out of memory/u) },
  });
  const ends = [(await finishedEvents(service, jobs[1]!)).at(-1), (await finishedEvents(service, jobs[2]!)).at(-1)];
  expect(ends).toMatchObject([{ data: { step: 1 } }, { data: { step: 2 } }]);
});

test("does not add up deaths with committed progress in between", async () => {
  // Each attempt commits two steps, and the trainer dies in the third.
  const service = await startTestService({
    engine: dyingIn((step) => [3, 6, 9].includes(step)),
    limits: { commitEverySteps: 2, maxJobAttempts: 2 },
  });
  const { id } = await createModel(service);
  const jobId = await startSftJob(service, id, 8, { config: { batch_size: 1, learning_rate: 0.1 } });
  expect((await finishedEvents(service, jobId)).at(-1)).toMatchObject({ type: "training_ended" });
});

test("ends a cancelled job in which the trainer dies as cancelled", async () => {
  const reached = deferred<void>();
  const service = await startTestService({
    engine: {
      async before({ verb }, { signal }) {
        if (verb !== "optimStep") return;
        reached.resolve();
        await new Promise((resolve) => signal?.addEventListener("abort", resolve));
        throw new UnavailableError("An engine worker died: out of memory");
      },
    },
  });
  const jobId = await startRlJob(service, (await createModel(service)).id);
  await reached.promise;
  expect(await service.ok("POST", `${RL_JOBS}/${jobId}/cancel`)).toMatchObject({ status: "cancelled" });
  expect((await finishedEvents(service, jobId)).map(({ type }) => type)).toContain("training_cancelled");
});
