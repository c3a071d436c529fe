import { readFileSync } from "node:fs";
import { join } from "node:path";
import { gunzipSync } from "node:zlib";
import { describe, expect, test } from "vitest";
import { readModelConfig } from "../../src/engine/onnx/model/config.ts";
import { baseLayout } from "../../src/engine/onnx/model/parameters.ts";
import { unpackTensors } from "../../src/engine/onnx/model/weights.ts";
import { Trainer } from "../../src/engine/onnx/train/trainer.ts";
import { logitsLoss, tokenLoss } from "../../src/engine/token-loss.ts";
import {
  buildRlBatch,
  linearLoss,
  linearRows,
  policyObjective,
  policyRows,
  type PolicyObjective,
  type Row,
} from "../../src/learner/index.ts";
import type { PolicyLoss } from "../../src/engine/port.ts";
import { rlConfig, trajectoryGroup, type RlConfig, type TrajectoryGroup } from "../../src/base/schema/index.ts";
import { choice } from "../learner/helpers.ts";
import { startHelper } from "../support/start-helper.ts";

/** Losses and gradients computed by PyTorch; see `loss-options.py`. */
interface Expected {
  readonly tokens: readonly {
    readonly loss: PolicyLoss;
    readonly logits: readonly number[];
    readonly target: number;
    readonly old: number | null;
    readonly advantage: number;
    readonly value: number;
    readonly entropy: number;
    readonly gradient: readonly number[];
  }[];
  readonly inputs: Readonly<Record<string, { readonly old: readonly number[]; readonly new: readonly number[] }>>;
  readonly groups: Readonly<Record<string, readonly GivenGroup[]>>;
  readonly batches: readonly {
    readonly batch: string;
    readonly config: RlConfig;
    readonly loss: number;
    readonly gradient: readonly number[];
  }[];
  readonly models: readonly {
    readonly kind: "cispo" | "ppo";
    readonly level: "token" | "sequence";
    readonly coefficient: number;
    readonly loss: number;
    readonly weightedEntropy: number;
    readonly gradients: Readonly<Record<string, readonly number[]>>;
  }[];
}
interface GivenGroup {
  readonly environment: string | null;
  readonly trajectories: readonly {
    readonly reward: number;
    readonly turns: readonly {
      readonly tokens: number;
      readonly finish: string;
      readonly advantages: readonly number[] | null;
      readonly weights: readonly number[] | null;
    }[];
  }[];
}
const expected = JSON.parse(readFileSync(join(import.meta.dirname, "loss-options.json"), "utf8")) as Expected;

/** Largest difference, relative to the largest expected magnitude. */
function relativeError(actual: ArrayLike<number>, wanted: readonly number[]): number {
  expect(actual.length).toBe(wanted.length);
  const scale = wanted.reduce((max, value) => Math.max(max, Math.abs(value)), 0);
  return wanted.reduce((worst, value, at) => Math.max(worst, Math.abs(value - actual[at]!)), 0) / scale;
}

describe("losses of single tokens in PyTorch", () => {
  test.each(expected.tokens.map((item, index) => [index, item] as const))(
    "case %i: value, entropy and gradient by the logits",
    (_, item) => {
      const { loss, logits, target, old, advantage, value, entropy, gradient } = item;
      const result = logitsLoss(loss, { logits: Float64Array.from(logits), target, oldLogprob: old ?? Number.NaN, advantage });
      expect(result.value).toBeCloseTo(value, 12);
      expect(result.entropy).toBeCloseTo(entropy, 12);
      expect(relativeError(result.gradient, gradient)).toBeLessThan(1e-12);
    },
  );
});

/** Groups in wire form, with every turn in a row of its own, and the index of the first sampled token of each turn. */
function wireGroups(name: string): { readonly groups: TrajectoryGroup[]; readonly starts: ReadonlyMap<string, number> } {
  const starts = new Map<string, number>();
  let at = 0;
  const groups = expected.groups[name]!.map(({ environment, trajectories }, g) =>
    trajectoryGroup.parse({
      metadata: environment === null ? {} : { environment },
      trajectories: trajectories.map(({ reward, turns }, i) => ({
        reward,
        messages_and_choices: turns.map(({ tokens, finish, advantages, weights }, k) => {
          starts.set(`${g}.${i}.${k}`, at);
          const old = expected.inputs[name]!.old.slice(at, (at += tokens));
          const sampled = choice([100 * g + 10 * i + k], Array(tokens).fill(7), old);
          return { ...sampled, finish_reason: finish, token_advantages: advantages, token_weights: weights };
        }),
      })),
    }),
  );
  return { groups, starts };
}

describe("losses of batches in PyTorch", () => {
  test.each(expected.batches.map((item, index) => [index, JSON.stringify([item.batch, item.config]), item] as const))(
    "case %i: %s",
    (_index, _name, { batch, config, loss, gradient }) => {
      const { groups, starts } = wireGroups(batch);
      const built = buildRlBatch(groups, rlConfig.parse(config), { contextLength: 64 });
      const fresh = expected.inputs[batch]!.new;
      const found = new Float64Array(gradient.length);
      let sum = 0;
      for (const [index, { group, trajectory, turns }] of built.sources.entries()) {
        const row = built.rows[index]!;
        for (const { turn, start, length } of turns) {
          const first = starts.get(`${group}.${trajectory}.${turn}`)!;
          for (let k = 0; k < length; k++) {
            const t = start + k;
            const input = { newLogprob: fresh[first + k]!, oldLogprob: row.logprobs![t]!, advantage: row.advantages![t]! };
            const { value, derivative } = tokenLoss(built.loss, input);
            sum += row.weights[t]! * value;
            found[first + k] = row.weights[t]! * derivative;
          }
        }
      }
      expect(Math.abs(sum - loss)).toBeLessThan(1e-6 * Math.max(Math.abs(loss), ...gradient.map(Math.abs)));
      expect(relativeError(found, gradient)).toBeLessThan(1e-6);
    },
  );
});

const directory = join(import.meta.dirname, "llama/model");
const signal = new AbortController().signal;

function modelRows(): Row[] {
  const text = gunzipSync(readFileSync(join(import.meta.dirname, "llama/expected.json.gz"))).toString();
  const data = JSON.parse(text) as Record<"rows" | "weights" | "advantages" | "old", number[][]>;
  return data.rows.map((tokens, i) => ({
    tokens: Int32Array.from(tokens),
    weights: Float32Array.from(data.weights[i]!),
    advantages: Float32Array.from(data.advantages[i]!),
    logprobs: Float32Array.from(data.old[i]!),
  }));
}

async function start(options: { readonly maxBatchTokens?: number } = {}): Promise<{ trainer: Trainer; id: string }> {
  const trainer = new Trainer({ threads: options.maxBatchTokens === undefined ? 1 : 2, startHelper, ...options });
  return { trainer, id: await trainer.createModel({ id: "oracle", directory }, { seed: 0 }) };
}

describe("the entropy bonus through a Llama in transformers", () => {
  test.each(expected.models.map((item) => [item.kind, item.level, item.coefficient, item] as const))(
    "%s, level %s, coefficient %f: loss and gradients agree, in one batch and in parallel halves of small batches",
    async (kind, level, coefficient, { loss, weightedEntropy, gradients }) => {
      const rows = modelRows();
      const bonus: PolicyLoss = { kind, epsilon: 0.2, epsilonHigh: 0.3, entropyCoefficient: coefficient };
      for (const options of [{}, { maxBatchTokens: 16 }]) {
        const { trainer, id } = await start(options);
        let value: number;
        let entropy: number | undefined;
        if (level === "token") {
          const { metrics } = await trainer.forwardBackward(id, rows, bonus, signal);
          [value, entropy] = [metrics.loss, metrics.weightedEntropy];
        } else {
          const objective: PolicyObjective = {
            ...bonus,
            level,
            tau: 0,
            masksRatio: false,
            maxNegativeRatio: null,
            truncation: null,
            precalculates: false,
            kl: null,
            compat: null,
          };
          const result = policyObjective(policyRows(rows, await trainer.forward(id, rows, signal)), objective);
          const { metrics } = await trainer.forwardBackward(id, linearRows(rows, result.derivatives), linearLoss(objective), signal);
          [value, entropy] = [result.loss - coefficient * metrics.weightedEntropy!, metrics.weightedEntropy];
        }
        expect(Math.abs(value / loss - 1)).toBeLessThan(1e-4);
        expect(Math.abs(entropy! / weightedEntropy - 1)).toBeLessThan(1e-5);
        const layout = baseLayout(await readModelConfig(directory));
        const tensors = new Map(unpackTensors(trainer.gradients(id), layout).map(({ name, data }) => [name, data]));
        for (const [name, wanted] of Object.entries(gradients)) expect(relativeError(tensors.get(name)!, wanted), name).toBeLessThan(1e-4);
        await trainer.unload(id);
      }
    },
  );

  test("equals the finite differences of the loss, if advantages are 0", async () => {
    const rows = modelRows().map((row) => ({ ...row, advantages: row.advantages!.map(() => 0) }));
    const loss: PolicyLoss = { kind: "ppo", epsilon: 0.2, epsilonHigh: 0.3, entropyCoefficient: 0.7 };
    // Adam's first step moves every weight by the rate against the sign of its gradient, so the loss by `−rate · Σ|g|`.
    const step = 2e-6;
    const losses: number[] = [];
    let slope = 0;
    for (const learningRate of [step, -step]) {
      const { trainer, id } = await start();
      await trainer.forwardBackward(id, rows, loss, signal);
      slope = trainer.gradients(id).reduce((sum, value) => sum + Math.abs(value), 0);
      await trainer.optimStep(id, { learningRate, epsilon: 1e-12 });
      losses.push((await trainer.forwardBackward(id, rows, loss, signal)).metrics.loss);
    }
    const [down, up] = losses as [number, number];
    expect(slope).toBeGreaterThan(0.1);
    expect(Math.abs((up - down) / (2 * step) / slope - 1)).toBeLessThan(3e-3);
  });
});
