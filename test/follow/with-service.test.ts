import { onTestFinished, describe, expect, it } from "vitest";
import { uploadDataset } from "../../src/library/dataset/index.ts";
import { connect, gatherTrajectoryGroups, trajectory, type JobEvent, type Policy } from "../../src/index.ts";
import type { TestServiceOptions } from "../../src/testing/index.ts";
import { startTestService } from "../service/support.ts";

async function open(options: TestServiceOptions = {}) {
  const { service: running } = await startTestService(options);
  const service = await connect({ dataDir: running.dataDir, apiKey: running.apiKey });
  onTestFinished(() => service.close());
  const model = await service.models.create({ project: "demo", name: "m", baseModel: "tiny", returnExisting: true });
  return { running, service, model };
}

const gather = (policy: Policy) =>
  gatherTrajectoryGroups(
    ["abc", "def"],
    async (prompt, { signal, seed, index }) => {
      const t = trajectory({ messages: [{ role: "user", content: prompt }] });
      await t.sample(policy, { temperature: 1, maxCompletionTokens: 8, seed, signal });
      return t.finish({ reward: index % 2 });
    },
    { groupSize: 2 },
  );

describe("the library on the embedded service", () => {
  it("connects to the service of a data directory, trains by RL and by SFT, and follows both jobs", async () => {
    const { running, service, model } = await open();
    expect(service.baseUrl).toBe(running.url);
    await expect(service.baseModels()).resolves.toContain("tiny");
    await expect(service.health()).resolves.toMatchObject({ status: "ok" });
    const before = await model.step();
    const policy = await model.policy(before);
    const groups = await gather(policy);
    expect(groups.flatMap(({ trajectories }) => trajectories).every(({ choices }) => choices[0]?.policy_version === before)).toBe(true);
    const job = await model.train(groups, { learningRate: 1e-2 });
    const events: JobEvent[] = [];
    for await (const event of job.events()) events.push(event);
    expect(events.map(({ type }) => type)).toEqual(["training-started", "gradient-step", "warning", "training-ended"]);
    expect(events.at(-1)).toMatchObject({ step: before + 1 });
    expect(service.features.jobEvents).toBe(true);
    expect(await job.get()).toMatchObject({ status: "succeeded", step: before + 1, type: "rl" });

    const example = {
      messages: [
        { role: "user", content: "abc" },
        { role: "assistant", content: "cba" },
      ],
    };
    const { url } = await uploadDataset(service, { project: "demo", name: "data", train: [example, ...(groups[0]?.trajectories ?? [])] });
    expect(url).toMatch(/^artifact:\/\/\/[^/]+\/demo\/data:v0$/);
    const sft = await model.trainSft(url, { batchSize: 3, learningRate: 1e-3, epochs: 2 });
    await expect(sft.done()).resolves.toMatchObject({ step: before + 2, metrics: { loss: expect.any(Number) as number } });
    expect((await model.checkpoints()).map(({ step }) => step)).toEqual([before, before + 1, before + 2]);
  });

  it("reads back the content of an artifact", async () => {
    const { service } = await open();
    const version = await service.artifacts.create({ project: "demo", name: "files", metadata: { kind: "test" } });
    await service.artifacts.putFile(version.id, "deep/a file.txt", "hällo");
    const committed = await service.artifacts.commit(version.id);
    expect(committed).toMatchObject({ state: "committed", metadata: { kind: "test" }, files: [{ path: "deep/a file.txt", sizeBytes: 6 }] });
    await expect(service.artifacts.get(version.id)).resolves.toEqual(committed);
    expect(Buffer.from(await service.artifacts.readFile(version.id, "deep/a file.txt")).toString()).toBe("hällo");
    await expect(service.artifacts.putFile(version.id, "late.txt", "x")).rejects.toMatchObject({ status: 409 });
    await expect(service.artifacts.putFile(version.id, "../up.txt", "x")).rejects.toMatchObject({ code: "E_ARGUMENT", param: "path" });
  });

  it("creates one job for one idempotency key", async () => {
    const { service, model } = await open();
    const groups = await gather(await model.policy());
    const jobs = [await model.train(groups, { idempotencyKey: "once" }), await model.train(groups, { idempotencyKey: "once" })];
    expect(jobs[0]?.id).toBe(jobs[1]?.id);
    await jobs[0]?.done();
    expect(await model.step()).toBe(1);
    expect(service.features).toEqual({ jobEvents: true, idempotencyKeys: true });
  });

  it("errors with JobCancelledError for a cancelled job", async () => {
    const { model } = await open({
      engine: {
        before: (call, { signal }) =>
          call.verb === "forwardBackward"
            ? new Promise((_, reject) => signal?.addEventListener("abort", () => reject(signal.reason as Error), { once: true }))
            : undefined,
      },
    });
    const job = await model.train(await gather(await model.policy()));
    const ending = job.done().catch((error: unknown) => error);
    await job.cancel();
    expect(await ending).toMatchObject({ code: "E_JOB_CANCELLED", jobId: job.id });
  });

  it("streams over the same connection", async () => {
    const { service, model } = await open();
    const { id } = await model.policy();
    let text = "";
    for await (const chunk of service.chat.completions.create({
      model: id,
      messages: [{ role: "user", content: "abc" }],
      stream: true,
      max_completion_tokens: 4,
    })) {
      expect(chunk.model).toContain(":step0");
      text += chunk.choices[0]?.delta.content ?? "";
    }
    expect(text).not.toBe("");
  });
});
