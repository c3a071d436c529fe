import { describe, expect, it } from "vitest";
import { gatherTrajectoryGroups, preflight, PreflightError, trajectory, TrajectoryGroup, type JobEvent } from "../../src/index.ts";
import { withTokenAdvantages } from "../../src/base/trajectory/index.ts";
import { group, sampled } from "../trajectory/samples.ts";
import { rejection, useServer } from "./connection.ts";

const open = useServer();

describe("the RL loop on a service with only the nine routes", () => {
  it("runs rollouts, trains, and continues with the new checkpoint", async () => {
    const { server, service } = await open();
    const model = await service.models.create({ project: "demo", name: "reverse", baseModel: "tiny", returnExisting: true });
    const steps: number[] = [];
    for (let step = await model.step(); step < 2; step++) {
      const policy = await model.policy(step);
      const groups = await gatherTrajectoryGroups(
        [{ prompt: "abc" }, { prompt: "abc" }],
        async (scenario, { signal, seed }) => {
          const t = trajectory({ messages: [{ role: "user", content: scenario.prompt }] });
          await t.sample(policy, { temperature: 1, maxCompletionTokens: 8, seed, signal });
          return t.finish({ reward: t.lastText === "cba" ? 1 : 0 });
        },
        { groupSize: 16, seed: 7 },
      );
      expect(groups.stats.reward.mean).toBeGreaterThan(0);
      const job = await model.train(groups, { learningRate: 1e-3 });
      const events: JobEvent[] = [];
      for await (const event of job.events()) events.push(event);
      expect(events.at(-1)).toMatchObject({ type: "training-ended", step: step + 1, metrics: { loss: 0.5 } });
      steps.push(step);
      const sent = server.requests.findLast(({ method, url }) => method === "POST" && url === "/v1/preview/training-jobs")?.body as Record<
        string,
        unknown
      >;
      expect(sent).toMatchObject({ model_id: model.id, experimental_config: { learning_rate: 1e-3 } });
      expect(preflight(sent["trajectory_groups"] as never).filter(({ severity }) => severity === "fatal")).toEqual([]);
      const [choice] = groups[0]?.trajectories[0]?.choices ?? [];
      expect(choice).toMatchObject({ prompt_token_ids: [1, 2, 3], policy_version: step });
    }
    expect(steps).toEqual([0, 1]);
    expect(service.features).toEqual({ jobEvents: false, idempotencyKeys: undefined });
    // Detected once: only the first job requested events.
    expect(server.requests.filter(({ url }) => url.includes("/events"))).toHaveLength(1);
  });

  it("runs an SFT job and returns the step and metrics of its checkpoint", async () => {
    const { server, service } = await open({ jobPolls: 0 });
    const model = await service.models.create({ project: "demo", name: "sft", baseModel: "tiny" });
    const job = await model.trainSft("artifact:///team/demo/data:v0", { batchSize: 4, learningRate: [1e-3, 5e-4] });
    await expect(job.done()).resolves.toEqual({ step: 1, metrics: { loss: 0.5 } });
    const sent = server.requests.find(({ url }) => url === "/v1/preview/sft-training-jobs")?.body;
    // No extension fields without an extension option.
    expect(sent).toEqual({
      model_id: model.id,
      training_data_url: "artifact:///team/demo/data:v0",
      config: { batch_size: 4, learning_rate: [1e-3, 5e-4] },
    });
  });

  it("rejects a batch without a learning signal before it sends a request", async () => {
    const { server, service } = await open();
    const model = await service.models.create({ project: "demo", name: "m", baseModel: "tiny" });
    const before = server.requests.length;
    const constant = new TrajectoryGroup({
      trajectories: [1, 1].map((reward) => trajectory({ messages: [{ role: "user", content: "x" }] }).finish({ reward })),
    });
    const error = await rejection(model.train([constant]));
    expect(error).toBeInstanceOf(PreflightError);
    expect((error as PreflightError).findings.map(({ code }) => code)).toEqual(expect.arrayContaining(["no-logprobs", "nothing-to-learn"]));
    expect(server.requests.length).toBe(before);
  });

  it("rejects token advantages in a job with turn rewards before it sends a request", async () => {
    const { server, service } = await open();
    const model = await service.models.create({ project: "demo", name: "m", baseModel: "tiny" });
    const before = server.requests.length;
    const supplied = [0, 1].map((reward) =>
      withTokenAdvantages(sampled(reward, `a${reward}`), ({ token_ids: ids }) => ids!.map(() => reward)),
    );
    const error = await rejection(model.train([group(...supplied)], { turnRewards: true }));
    expect(error).toMatchObject({ code: "E_PREFLIGHT", findings: [{ code: "token-advantages-with-turn-rewards", count: 2 }] });
    expect(server.requests.length).toBe(before);
  });

  it("sends choices of other services only if the job allows them, and logs it", async () => {
    const { server, service } = await open();
    const model = await service.models.create({ project: "demo", name: "m", baseModel: "tiny" });
    const said = (reward: number) => ({
      reward,
      messages_and_choices: [
        { role: "user", content: "q" },
        { message: { role: "assistant", content: `a${reward}` }, finish_reason: "stop" },
      ],
    });
    const group = TrajectoryGroup.fromJSON({ trajectories: [said(0), said(1)] });
    expect(await rejection(model.train([group]))).toBeInstanceOf(PreflightError);
    const job = await model.train([group], { allowTrainingWithoutLogprobs: true });
    expect(job.warnings).toMatchObject([{ code: "rendered-choice", count: 2 }]);
    const sent = server.requests.findLast(({ method, url }) => method === "POST" && url === "/v1/preview/training-jobs")?.body;
    expect(sent).toMatchObject({ experimental_config: { allow_training_without_logprobs: true } });
  });

  it.each([
    ["an unknown RL option", "train", { learningRat: 1 }, /Unknown option `learningRat`; expected one of .*learningRate/],
    ["an RL value out of bounds", "train", { advantageBalance: 2 }, /Option `advantageBalance`/],
    ["an unknown SFT option", "trainSft", { epoch: 1 }, /Unknown option `epoch`; expected one of .*batchSize.*epochs/],
  ] as const)("rejects %s", async (_, method, options, message) => {
    const { service } = await open();
    const model = await service.models.create({ project: "demo", name: "m", baseModel: "tiny" });
    const call = method === "train" ? model.train([], options as object) : model.trainSft("artifact:///a/b/c:v0", options as object);
    await expect(call).rejects.toMatchObject({ code: "E_ARGUMENT", message: expect.stringMatching(message) as string });
  });
});
