import { expect, test } from "vitest";
import { connect } from "../../src/index.ts";
import { stepMetrics } from "../project/files.ts";
import { choice, createModel, finishedEvents, group, MODELS, RL_JOBS, startTestService } from "./support.ts";

/** The metrics of every RL step, for any loss, by the reference page. */
const NAMES = stepMetrics();

/** The scripted engine gives every token −1 while its weight is 0: a turn sampled at −1 has no difference. */
const agreeing = (logprob = -1, version: number | null = null) => {
  const turn = (sampled: number) => ({ ...choice([1, 2, 3], [sampled], [logprob]), policy_version: version });
  return group({ reward: 1, choices: [turn(4)] }, { reward: 0, choices: [turn(5)] });
};

test("every metric is reported with any loss, in the step and on the checkpoint", async () => {
  const service = await startTestService();
  const { id: modelId } = await createModel(service);
  for (const config of [{}, { importance_sampling_level: "sequence", kl_penalty_coef: 0.1 }, { precalculate_logprobs: true, ppo: true }]) {
    const body = { model_id: modelId, trajectory_groups: [agreeing()], experimental_config: { ...config, learning_rate: 1e-12 } };
    const events = await finishedEvents(service, (await service.ok("POST", RL_JOBS, body)).id);
    const numbers = events[1]?.data as Record<string, number>;
    for (const name of NAMES) expect(numbers[name], name).toEqual(expect.any(Number));
    const { data } = await service.ok("GET", `${MODELS}/${modelId}/checkpoints?order=desc&limit=1`);
    const { gradient_step: _, ...kept } = numbers;
    expect(data[0].metrics).toEqual(kept);
    expect(events.map(({ type }) => type)).toEqual(["training_started", "gradient_step", "training_ended"]);
  }
});

test("reports a sampler mismatch as a warning event, also to a follower of the job", async () => {
  const service = await startTestService();
  const { id: modelId } = await createModel(service);
  const train = async (trajectories: object) =>
    (await service.ok("POST", RL_JOBS, { model_id: modelId, trajectory_groups: [trajectories] })).id as string;
  const id = await train(agreeing(-1.2));
  const events = await finishedEvents(service, id);
  expect(events.map(({ type }) => type)).toEqual(["training_started", "gradient_step", "warning", "training_ended"]);
  expect(events[2]?.data).toMatchObject({ code: "sampler-mismatch", threshold: 1e-3, message: expect.stringContaining("same weights") });
  expect(events[2]?.data.value).toBeCloseTo(Math.exp(0.2) - 1.2, 5);
  const client = await connect({ baseUrl: service.service.url, apiKey: service.service.apiKey });
  const followed = [];
  for await (const event of client.follow(id)) if (event.type === "warning") followed.push(event);
  expect(followed).toEqual([{ ...events[2]!.data, type: "warning", id: events[2]!.id }]);
  await client.close();
  // The same distance does not warn for turns of older weights: the model is now at step 1.
  expect((await finishedEvents(service, await train(agreeing(-1.2, 0)))).map(({ type }) => type)).not.toContain("warning");
});

test("compares with earlier steps, also after their checkpoints were deleted", async () => {
  const service = await startTestService();
  const { id: modelId } = await createModel(service);
  const constant = (count: number) =>
    Array.from({ length: count }, () =>
      group({ reward: 1, choices: [choice([1], [2], [-1])] }, { reward: 1, choices: [choice([1], [3], [-1])] }),
    );
  const warned: unknown[] = [];
  for (const count of [0, 0, 0, 3]) {
    const body = { model_id: modelId, trajectory_groups: [agreeing(), ...constant(count)], experimental_config: { learning_rate: 1e-12 } };
    const events = await finishedEvents(service, (await service.ok("POST", RL_JOBS, body)).id);
    warned.push(...events.filter(({ type }) => type === "warning").map(({ data }) => [data.code, data.value, data.threshold]));
    await service.ok("DELETE", `${MODELS}/${modelId}/checkpoints`, { steps: [1, 2] });
  }
  expect(warned).toEqual([["constant-groups-rising", 0.75, 0.5]]);
});
