/** Models in the engine's memory whose unloading fails. */
import { expect, test } from "vitest";
import type { ScriptedCall } from "../../src/testing/index.ts";
import { chatLines, createModel, finishedEvents, RL_JOBS, SFT_JOBS, startRlJob, startTestService, uploadArtifact } from "./support.ts";

/** Starts a service that keeps one model, with an engine that fails the next call of each method in `broken`. */
function withBroken(broken: Set<ScriptedCall["verb"]>) {
  return startTestService({
    limits: { maxWarmModels: 1 },
    engine: {
      before: ({ verb }) => {
        if (broken.delete(verb)) throw new Error(`${verb} is broken`);
      },
    },
  });
}

test("a model stays usable although the model before it cannot be unloaded", async () => {
  const broken = new Set<ScriptedCall["verb"]>(["unload"]);
  const service = await withBroken(broken);
  const [first, second] = [await createModel(service, "first"), await createModel(service, "second")];
  for (const { id } of [first, second, second, first]) {
    const events = await finishedEvents(service, await startRlJob(service, id));
    expect(events.at(-1)).toMatchObject({ type: "training_ended" });
  }
  expect(service.log.map(({ message }) => message)).toContain("A model that is no longer needed could not be unloaded");
});

test("a job fails with its own error, also if its model cannot be unloaded", async () => {
  const broken = new Set<ScriptedCall["verb"]>();
  const service = await withBroken(broken);
  const { id } = await createModel(service);
  await finishedEvents(service, await startRlJob(service, id));
  broken.add("resetOptimizer").add("unload");
  const url = await uploadArtifact(service, { "train.jsonl": chatLines(2) });
  const job = (await service.ok("POST", SFT_JOBS, { model_id: id, training_data_url: url })) as { id: string };
  expect((await finishedEvents(service, job.id)).at(-1)).toMatchObject({ type: "training_failed" });
  expect(await service.ok("GET", `${RL_JOBS}/${job.id}`)).toMatchObject({ error_message: "resetOptimizer is broken" });
});
