import { describe, expect, it } from "vitest";
import { useServer } from "./connection.ts";

const open = useServer();

describe("resources", () => {
  it("creates, gives the existing, and deletes a model", async () => {
    const { server, service } = await open();
    const model = await service.models.create({ project: "p", name: "n", baseModel: "tiny", returnExisting: true });
    expect(model).toMatchObject({ entity: "team", project: "p", name: "n", baseModel: "tiny", runId: null, lora: null });
    expect(server.requests[0]?.body).toEqual({ project: "p", name: "n", base_model: "tiny", return_existing: true });
    expect((await service.models.create({ project: "p", name: "n", baseModel: "tiny", returnExisting: true })).id).toBe(model.id);
    await expect(service.models.create({ project: "p", name: "n", baseModel: "tiny" })).rejects.toMatchObject({ status: 409 });
    await expect(model.delete()).resolves.toEqual({ modelId: model.id, deletedCheckpoints: 1, deletedRun: false });
  });

  it("lists checkpoints over pages, newest first on request, and deletes some", async () => {
    const { server, service } = await open({ jobPolls: 0 });
    const model = await service.models.create({ project: "p", name: "n", baseModel: "tiny" });
    for (let job = 0; job < 130; job++) {
      await service.trainingJobs.createSft({ model_id: model.id, training_data_url: "artifact:///a/b/c:v0" });
      await model.step();
    }
    expect((await model.checkpoints()).map(({ step }) => step)).toEqual(Array.from({ length: 131 }, (_, step) => step));
    expect((await service.checkpoints.list(model.id, { order: "desc", max: 2 })).map(({ step }) => step)).toEqual([130, 129]);
    await expect(service.checkpoints.delete(model.id, [1, 999])).resolves.toEqual({ deletedCount: 1, notFoundSteps: [999] });
    expect(server.requests.every(({ headers }) => headers.authorization === `Bearer ${server.apiKey}`)).toBe(true);
  }, 30_000);

  it("names policies by step, with the service's prefix", async () => {
    const { server, service } = await open();
    const model = await service.models.create({ project: "p", name: "n", baseModel: "tiny" });
    const policy = await model.policy(7);
    expect(policy).toMatchObject({ id: "team/p/n:step7", step: 7 });
    await policy.complete({ messages: [{ role: "user", content: "hi" }] });
    expect(server.requests.at(-1)?.body).toMatchObject({ model: "team/p/n:step7", stream: false });
    await expect(model.policy(1.5)).rejects.toMatchObject({ code: "E_ARGUMENT" });
  });

  it("sends a 64-bit seed as the integer it is", async () => {
    const { server, service } = await open();
    await service.chat.completions.create({ messages: [{ role: "user", content: "hi" }], seed: 9007199254740993n });
    expect(server.requests[0]?.text).toBe(`{"seed":9007199254740993,"messages":[{"role":"user","content":"hi"}]}`);
  });
});
