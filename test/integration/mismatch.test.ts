import { expect, test, onTestFinished } from "vitest";
import { startService } from "../../src/service/index.ts";
import { type Address, BASE, finishedEvents, MODELS, RL_JOBS, rollOut, send, temporaryDirectory } from "./support.ts";

/** Rounding of float32 sums in another order; anything above is another computation. */
const TOLERANCE = 1e-5;

async function trainOn(service: Address, modelId: string, groups: readonly object[]): Promise<any> {
  const { id } = await send(service, "POST", RL_JOBS, {
    model_id: modelId,
    trajectory_groups: groups,
    experimental_config: { learning_rate: 1e-3 },
  });
  const events = await finishedEvents(service, id);
  expect(events.at(-1)).toMatchObject({ type: "training_ended" });
  return events.find((event) => event.type === "gradient_step")?.data;
}

test.for([{ name: "full" }, { name: "adapter", lora: { rank: 4 } }])(
  "sampler and trainer agree on the log-probabilities of sampled tokens in every step: $name",
  async ({ name, ...lora }) => {
    const service = await startService({ dataDir: await temporaryDirectory() });
    onTestFinished(() => service.close({ graceMs: 0 }));
    const { id, entity } = await send(service, "POST", MODELS, { project: "demo", name, base_model: BASE, ...lora });
    const prompts = ["hi", "Say one word.", "Reverse the text abcdefgh and write it between tags, please."];
    let last: number | undefined;
    for (let step = 0; step < 3; step++) {
      const model = `${entity}/demo/${name}:step${step}`;
      const groups = await Promise.all(prompts.map((prompt) => rollOut(service, prompt, { model })));
      const metrics = await trainOn(service, id, groups);
      expect(metrics.num_trainable_tokens).toBeGreaterThan(20);
      expect(metrics.logprob_difference_max).toBeLessThanOrEqual(TOLERANCE);
      expect(metrics.logprob_difference_mean).toBeLessThanOrEqual(metrics.logprob_difference_max);
      // Two computations in another order: exactly nothing would mean that nothing was compared.
      expect(metrics.logprob_difference_max).toBeGreaterThan(0);
      // On-policy all the same: every ratio is 1 but for rounding, and nothing is clipped.
      expect(metrics["sampler/mismatch_kl"]).toBeLessThan(1e-9);
      expect(metrics["policy/kl_k3"]).toBe(metrics["sampler/mismatch_kl"]);
      expect(metrics["policy/ess"]).toBeCloseTo(1, 6);
      expect(metrics["policy/ratio_p99"]).toBeCloseTo(1, 4);
      expect(metrics).toMatchObject({ "policy/clip_fraction": 0, "staleness/max": 0, "policy/entropy": metrics.entropy });
      expect(metrics["tokens/padding_share"]).toBeGreaterThan(0);
      expect(metrics["tokens/padding_share"]).toBeLessThan(1);
      last = metrics.grad_norm;
    }
    expect(last).toBeGreaterThan(0);
  },
);

test("logprob_difference_max measures a deviating sampler", async () => {
  const service = await startService({ dataDir: await temporaryDirectory() });
  onTestFinished(() => service.close({ graceMs: 0 }));
  const { id } = await send(service, "POST", MODELS, { project: "demo", name: "off", base_model: BASE });
  const metrics = await trainOn(service, id, [await rollOut(service, "hello", { nudge: -0.01 })]);
  expect(metrics.logprob_difference_max).toBeCloseTo(0.01, 4);
  // Rollouts of the base, trained at step 1: off-policy by one step of learning.
  const stale = await trainOn(service, id, [await rollOut(service, "hello")]);
  expect(stale.logprob_difference_max).toBeGreaterThan(100 * TOLERANCE);
});
