import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { gunzipSync } from "node:zlib";
import { beforeAll, describe, expect, test } from "vitest";
import { readModelConfig } from "../../src/engine/onnx/model/config.ts";
import { baseLayout } from "../../src/engine/onnx/model/parameters.ts";
import { unpackTensors } from "../../src/engine/onnx/model/weights.ts";
import { Trainer } from "../../src/engine/onnx/train/trainer.ts";
import { linearLoss, linearRows, policyObjective, policyRows, type PolicyObjective, type Row } from "../../src/learner/index.ts";

/** Losses and gradients of a small random Llama computed by Hugging Face transformers; see `llama-policy.py`. */
interface Case {
  readonly settings: Omit<PolicyObjective, "kl" | "epsilon" | "epsilonHigh" | "compat"> & {
    readonly kl: "sample" | "current_learner" | null;
  };
  readonly loss: number;
  readonly gradients: Readonly<Record<string, readonly number[]>>;
}

const read = async (name: string): Promise<unknown> => JSON.parse(gunzipSync(await readFile(join(import.meta.dirname, name))).toString());
const directory = join(import.meta.dirname, "llama/model");
const signal = new AbortController().signal;
let rows: Row[];
let cases: readonly Case[];

beforeAll(async () => {
  const data = (await read("llama/expected.json.gz")) as Record<"rows" | "weights" | "advantages" | "old", number[][]>;
  rows = data.rows.map((tokens, i) => ({
    tokens: Int32Array.from(tokens),
    weights: Float32Array.from(data.weights[i]!),
    advantages: Float32Array.from(data.advantages[i]!),
    logprobs: Float32Array.from(data.old[i]!),
  }));
  cases = ((await read("llama-policy.json.gz")) as { readonly cases: readonly Case[] }).cases;
});

describe("policy losses through a Llama in transformers", () => {
  test.each(Array.from({ length: 10 }, (_, index) => index))("case %i: the loss and the parameters' gradients agree", async (index) => {
    expect(cases).toHaveLength(10);
    const { settings, loss, gradients } = cases[index]!;
    const kl = settings.kl === null ? null : { coefficient: 0.3, source: settings.kl };
    const objective: PolicyObjective = { ...settings, epsilon: 0.2, epsilonHigh: 0.3, kl, compat: null };
    const trainer = new Trainer({ threads: 1 });
    const id = await trainer.createModel({ id: "oracle", directory }, { seed: 0 });
    const fresh = await trainer.forward(id, rows, signal);
    const reference = rows.map(({ logprobs }) => logprobs!.map((value) => value * 0.9 - 0.1));
    const result = policyObjective(policyRows(rows, fresh, reference), objective);
    expect(Math.abs(result.loss - loss)).toBeLessThan(1e-5 * Math.max(1, Math.abs(loss)));
    await trainer.forwardBackward(id, linearRows(rows, result.derivatives), linearLoss({}), signal);
    const tensors = new Map(
      unpackTensors(trainer.gradients(id), baseLayout(await readModelConfig(directory))).map(({ name, data }) => [name, data]),
    );
    for (const [name, wanted] of Object.entries(gradients)) {
      const scale = wanted.reduce((most, value) => Math.max(most, Math.abs(value)), 0);
      const worst = wanted.reduce((most, value, at) => Math.max(most, Math.abs(value - tensors.get(name)![at]!)), 0);
      expect(scale).toBeGreaterThan(1e-3);
      expect(worst / scale, name).toBeLessThan(2e-5);
    }
  });
});

describe("policy losses against finite differences through the engine", () => {
  // Nothing but the loss of PPO is differentiable as it stands: everything else stops a gradient on purpose.
  test.each(["token", "sequence", "average", "geometric_average"] as const)(
    "ppo, %s: the loss changes as its gradient says",
    async (level) => {
      const objective: PolicyObjective = {
        kind: "ppo",
        epsilon: 0.2,
        epsilonHigh: 0.3,
        level,
        tau: 0,
        masksRatio: false,
        maxNegativeRatio: null,
        truncation: null,
        precalculates: false,
        kl: null,
        compat: null,
      };
      // Adam's first step moves every weight by the rate against the sign of its gradient, so the loss by `−rate · Σ|g|`.
      const step = 2e-6;
      const losses: number[] = [];
      let slope = 0;
      for (const learningRate of [step, -step]) {
        const trainer = new Trainer({ threads: 1 });
        const id = await trainer.createModel({ id: "oracle", directory }, { seed: 0 });
        const { derivatives } = policyObjective(policyRows(rows, await trainer.forward(id, rows, signal)), objective);
        await trainer.forwardBackward(id, linearRows(rows, derivatives), linearLoss({}), signal);
        slope = trainer.gradients(id).reduce((sum, value) => sum + Math.abs(value), 0);
        await trainer.optimStep(id, { learningRate, epsilon: 1e-12 });
        losses.push(policyObjective(policyRows(rows, await trainer.forward(id, rows, signal)), objective).loss);
      }
      const [down, up] = losses as [number, number];
      expect(Math.abs((up - down) / (2 * step) / slope - 1)).toBeLessThan(3e-3);
    },
  );
});
