import { describe, expect, it } from "vitest";
import { useServer } from "./connection.ts";

const open = useServer();

describe("resources", () => {
  it("creates a model, returns an existing one, and deletes it", async () => {
    const { server, service } = await open();
    const model = await service.models.create({ project: "p", name: "n", baseModel: "tiny", returnExisting: true });
    expect(model).toMatchObject({ entity: "team", project: "p", name: "n", baseModel: "tiny", runId: null, lora: null });
    expect(server.requests[0]?.body).toEqual({ project: "p", name: "n", base_model: "tiny", return_existing: true });
    expect((await service.models.create({ project: "p", name: "n", baseModel: "tiny", returnExisting: true })).id).toBe(model.id);
    await expect(service.models.create({ project: "p", name: "n", baseModel: "tiny" })).rejects.toMatchObject({ status: 409 });
    await expect(model.delete()).resolves.toEqual({ modelId: model.id, deletedCheckpoints: 1, deletedRun: false });
  });

  it("lists checkpoints over several pages, newest first if requested, and deletes some", async () => {
    const { server, service } = await open({ jobPolls: 0 });
    const model = await service.models.create({ project: "p", name: "n", baseModel: "tiny" });
    for (let job = 0; job < 130; job++) {
      await service.trainingJobs.createSft({ model_id: model.id, training_data_url: "artifact:///a/b/c:v0" });
      await model.step();
    }
    expect((await model.checkpoints()).map(({ step }) => step)).toEqual(Array.from({ length: 131 }, (_, step) => step));
    expect((await model.policy(64)).step).toBe(64);
    await expect(model.policy(131)).rejects.toThrow("it has: 0, 1, 2, 3, 4, 5, 6, 7, 8 … 130");
    expect((await service.checkpoints.list(model.id, { order: "desc", max: 2 })).map(({ step }) => step)).toEqual([130, 129]);
    await expect(service.checkpoints.delete(model.id, [1, 999])).resolves.toEqual({ deletedCount: 1, notFoundSteps: [999] });
    expect(server.requests.every(({ headers }) => headers.authorization === `Bearer ${server.apiKey}`)).toBe(true);
  });

  it("names policies by step, with the prefix of the service", async () => {
    const { server, service } = await open();
    const model = await service.models.create({ project: "p", name: "n", baseModel: "tiny" });
    const policy = await model.policy(0);
    expect(policy).toMatchObject({ id: "team/p/n:step0", step: 0 });
    await policy.complete({ messages: [{ role: "user", content: "hi" }] });
    expect(server.requests.at(-1)?.body).toMatchObject({ model: "team/p/n:step0", stream: false });
    await expect(model.policy(1.5)).rejects.toMatchObject({ code: "E_ARGUMENT" });
    await expect(model.policy(7)).rejects.toMatchObject({
      code: "E_NOT_FOUND",
      message: 'Model "p/n" has no checkpoint at step 7; it has: 0',
    });
  });

  it("sends a 64-bit seed without loss of precision", async () => {
    const { server, service } = await open();
    await service.chat.completions.create({ messages: [{ role: "user", content: "hi" }], seed: 9007199254740993n });
    expect(server.requests[0]?.text).toBe(`{"seed":9007199254740993,"messages":[{"role":"user","content":"hi"}]}`);
  });
});
