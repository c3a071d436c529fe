import { describe, expect, test } from "vitest";
import { choice, createModel, finishedEvents, goodGroup, group, RL_JOBS, startTestService, type TestService } from "./support.ts";

async function train(service: TestService, modelId: string, config: object, groups: readonly unknown[] = [goodGroup()]) {
  const { id } = await service.ok("POST", RL_JOBS, { model_id: modelId, trajectory_groups: groups, experimental_config: config });
  return finishedEvents(service, id);
}
const verbs = (service: TestService): string[] => service.engine.calls.map((call) => call.verb);

describe("a loss that the engine lacks", () => {
  test("is computed from a forward pass and trained as a plain policy gradient", async () => {
    const service = await startTestService();
    const { id } = await createModel(service);
    const [, step] = await train(service, id, { importance_sampling_level: "sequence", ppo: true });
    const trained = service.engine.calls.filter((call) => ["forward", "forwardBackward"].includes(call.verb));
    expect(trained.map((call) => call.verb)).toEqual(["forward", "forwardBackward", "forward"]);
    expect(trained[1]?.detail).toMatchObject({ loss: { kind: "cispo", epsilon: 1, epsilonHigh: 1 } });
    // The scripted engine says −1 of every token; advantages are 1 and −1, weights 1/4 twice and 1/2, old log-probabilities −0.1 and −0.2.
    const [good, bad] = [Math.exp(-0.85), Math.exp(-0.9)];
    expect(good).toBeLessThan(0.8);
    expect(step?.data.loss).toBeCloseTo((-1 / 2) * good + (1 / 2) * Math.max(bad, 0.8), 5);
    expect(step?.data).toMatchObject({ num_trainable_tokens: 3, entropy: 1 });
    expect(step?.data).not.toHaveProperty("kl_policy_ref");
  });

  test("needs no forward pass if the engine has the loss", async () => {
    const service = await startTestService();
    const { id } = await createModel(service);
    await train(service, id, { importance_sampling_level: "token", model_k2_tau: 0, compat: "art" });
    // The check of the trained model follows the update.
    expect(verbs(service).filter((verb) => /forward|optim/u.test(verb))).toEqual(["forwardBackward", "optimStep", "forward"]);
  });
});

describe("the entropy bonus", () => {
  test.each([
    ["in the loss of the engine", {}, 1],
    ["in the second pass of a loss that the engine lacks, once", { importance_sampling_level: "sequence" }, 1],
  ])("is %s", async (_, config, count) => {
    const losses: number[] = [];
    for (const bonus of [{}, { entropy_coef: 0.25 }]) {
      const service = await startTestService();
      const { id } = await createModel(service);
      const [, step] = await train(service, id, { ...config, ...bonus });
      losses.push(step?.data.loss);
      const passes = service.engine.calls.filter((call) => call.verb === "forwardBackward");
      expect(passes).toHaveLength(1);
      const { loss } = passes[0]!.detail as { readonly loss: { readonly entropyCoefficient?: number } };
      expect(loss.entropyCoefficient).toBe("entropy_coef" in bonus ? 0.25 : undefined);
    }
    // Every token of the scripted engine has an entropy of 1 nat, and the weights add up to 1.
    expect(losses[0]! - losses[1]!).toBeCloseTo(0.25 * count, 6);
  });

  test("is rejected by name before the job is created if the engine has none", async () => {
    const service = await startTestService();
    const { id } = await createModel(service);
    const { capabilities } = service.engine;
    service.engine.capabilities = () => ({ ...capabilities(), entropyBonus: undefined });
    const body = { model_id: id, trajectory_groups: [goodGroup()], experimental_config: { entropy_coef: 0.1 } };
    const answer = await service.call("POST", RL_JOBS, body);
    expect(answer).toMatchObject({
      status: 422,
      body: { error: { param: "experimental_config.entropy_coef", error_code: "E_UNSUPPORTED" } },
    });
    await train(service, id, { entropy_coef: 0 });
  });
});

describe("truncated trajectories", () => {
  test("are counted, and a job without any other is rejected", async () => {
    const service = await startTestService();
    const { id } = await createModel(service);
    const cut = { ...choice([1], [2]), finish_reason: "length" };
    const groups = [group({ reward: 1, choices: [choice([1], [3])] }, { reward: 0, choices: [cut] })];
    const [, step] = await train(service, id, { mask_truncated: true }, groups);
    expect(step?.data).toMatchObject({ "data/truncated_trajectories": 1, "data/trainable_trajectories": 1 });
    const only = [group({ reward: 1, choices: [cut] }, { reward: 0, choices: [cut] })];
    const body = { model_id: id, trajectory_groups: only, experimental_config: { mask_truncated: true } };
    const answer = await service.call("POST", RL_JOBS, body);
    expect(answer.status).toBe(422);
    expect(JSON.stringify(answer.body)).toContain("`mask_truncated` excludes it");
  });
});

describe("the KL penalty", () => {
  test("uses the base, a step or a lagged step as reference, and unloads it", async () => {
    const service = await startTestService();
    const { id } = await createModel(service);
    for (let step = 0; step < 2; step++) await train(service, id, { learning_rate: 0.1 });
    const weights: number[] = [];
    for (const [config, isLoaded] of [
      [{}, false],
      [{ kl_penalty_reference_step: 1 }, true],
      [{ kl_penalty_step_lag: 1 }, true],
      [{ kl_penalty_step_lag: 99 }, false],
    ] as const) {
      const before = service.engine.calls.length;
      const events = await train(service, id, {
        kl_penalty_coef: 0.1,
        kl_penalty_source: "current_learner",
        learning_rate: 1e-9,
        ...config,
      });
      weights.push(events[1]?.data.kl_policy_ref);
      const calls = service.engine.calls.slice(before);
      const reference = calls.find((call) => call.verb === "createModel")?.detail as { readonly from?: string };
      // Step 0 is the base itself.
      expect(reference.from !== undefined).toBe(isLoaded);
      expect(calls.filter((call) => call.verb === "unload")).toHaveLength(1);
    }
    expect(service.engine.liveModels()).toHaveLength(1);
    const [base, first, lagged, farthest] = weights;
    // The weights moved away from the base with every step.
    expect(base).toBeGreaterThan(first!);
    expect(first).toBeGreaterThan(lagged!);
    expect(farthest).toBeCloseTo(base!, 6);
  });

  test("fails a job with a missing reference step by name", async () => {
    const service = await startTestService();
    const { id } = await createModel(service);
    const events = await train(service, id, { kl_penalty_coef: 0.1, kl_penalty_reference_step: 7 });
    expect(events.at(-1)).toMatchObject({ type: "training_failed", data: { error_message: expect.stringContaining("step 7") } });
    expect(service.engine.liveModels()).toEqual([]);
  });
});

describe("choices of other services", () => {
  const said = (content: string) => ({ message: { role: "assistant", content }, finish_reason: "stop" });
  const groups = [group({ reward: 1, choices: [said("yes")] }, { reward: 0, choices: [said("no")] })];

  test("are rendered, counted and reported as a warning if the job allows choices without log-probabilities", async () => {
    const service = await startTestService();
    const { id } = await createModel(service);
    const [started, step] = await train(service, id, { allow_training_without_logprobs: true }, groups);
    expect(started?.data.warnings).toMatchObject([{ code: "rendered-choice", severity: "warning", count: 2 }]);
    expect(step?.data).toMatchObject({ "data/rendered_turns": 2, "data/rendered_drift": 0, logprob_difference_max: 0 });
  });

  test("are rejected before the job is created otherwise", async () => {
    const service = await startTestService();
    const { id } = await createModel(service);
    const answer = await service.call("POST", RL_JOBS, { model_id: id, trajectory_groups: groups });
    expect(answer.status).toBe(422);
    expect(JSON.stringify(answer.body)).toContain("A choice has no log-probabilities");
  });
});
