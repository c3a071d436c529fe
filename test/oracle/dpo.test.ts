import { readFileSync } from "node:fs";
import { join } from "node:path";
import { gunzipSync } from "node:zlib";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { readModelConfig } from "../../src/engine/onnx/model/config.ts";
import { baseLayout } from "../../src/engine/onnx/model/parameters.ts";
import { unpackTensors } from "../../src/engine/onnx/model/weights.ts";
import { Trainer } from "../../src/engine/onnx/train/trainer.ts";
import {
  pairSums,
  preferenceGradient,
  preferenceRows,
  type PairValues,
  type PreferenceGradient,
  type PreferenceMetrics,
} from "../../src/learner/index.ts";
import { createReferenceEngine } from "../../src/testing/index.ts";

/** Losses, metrics and gradients of PyTorch and TRL; see `dpo.py`. */
interface Expected {
  readonly versions: Readonly<Record<string, string>>;
  readonly pairs: readonly Readonly<Record<"prompt" | "chosen" | "rejected", readonly number[]>>[];
  /** Sums of log-probabilities under the reference policy. */
  readonly reference: readonly PairValues[];
  readonly cases: readonly {
    readonly setting: { readonly beta: number; readonly label_smoothing: number; readonly length_normalization: boolean };
    readonly metrics: PreferenceMetrics;
    /** Null for a loss that TRL does not have. */
    readonly trl: PreferenceMetrics | null;
    readonly gradients: Readonly<Record<string, readonly number[]>>;
  }[];
}
type Case = Expected["cases"][number];

const expected = JSON.parse(gunzipSync(readFileSync(join(import.meta.dirname, "dpo.json.gz"))).toString()) as Expected;
const directory = join(import.meta.dirname, "llama/model");
const signal = new AbortController().signal;

const batch = preferenceRows(
  expected.pairs.map(({ prompt, ...answers }) => {
    const sequence = (answer: readonly number[]) => ({
      tokens: Int32Array.of(...prompt, ...answer),
      mask: Uint8Array.of(...prompt.map(() => 0), ...answer.map(() => 1)),
    });
    return { chosen: sequence(answers.chosen), rejected: sequence(answers.rejected) };
  }),
);

function gradientOf({ setting }: Case, logprobs: readonly Float32Array[]): PreferenceGradient {
  const { beta, label_smoothing: labelSmoothing, length_normalization: normalizesLength } = setting;
  const sums = { policy: pairSums(batch.rows, logprobs), reference: expected.reference };
  return preferenceGradient(batch, sums, { beta, labelSmoothing, normalizesLength });
}

/** Largest difference, relative to the largest expected magnitude. */
function relativeError(actual: ArrayLike<number>, wanted: readonly number[]): number {
  expect(actual.length).toBe(wanted.length);
  const scale = wanted.reduce((max, value) => Math.max(max, Math.abs(value)), 0);
  return wanted.reduce((worst, value, at) => Math.max(worst, Math.abs(value - actual[at]!)), 0) / scale;
}

const NAMED = expected.cases.map((each) => [JSON.stringify(each.setting), each] as const);

describe("preference pairs in PyTorch", () => {
  const trainer = new Trainer({ threads: 1 });
  let id: string;
  let logprobs: readonly Float32Array[];
  beforeAll(async () => {
    id = await trainer.createModel({ id: "oracle", directory }, { seed: 0 });
    logprobs = await trainer.forward(id, batch.rows, signal);
  });

  test.each(NAMED)("%s: loss and metrics agree", (_, item) => {
    const { metrics } = gradientOf(item, logprobs);
    expect(relativeError([metrics.loss], [item.metrics.loss])).toBeLessThan(1e-6);
    for (const name of Object.keys(item.metrics) as (keyof PreferenceMetrics)[])
      expect(Math.abs(metrics[name] - item.metrics[name]), name).toBeLessThan(1e-5);
  });

  test.each(NAMED)("%s: the gradient of parameters of every kind agrees", async (_, item) => {
    const { rows, loss } = gradientOf(item, logprobs);
    await trainer.forwardBackward(id, rows, loss, signal);
    const tensors = unpackTensors(trainer.gradients(id), baseLayout(await readModelConfig(directory)));
    await trainer.optimStep(id, { learningRate: 0 });
    const found = new Map(tensors.map(({ name, data }) => [name, data]));
    for (const [name, values] of Object.entries(item.gradients)) expect(relativeError(found.get(name)!, values), name).toBeLessThan(1e-4);
  });
});

describe("preference pairs on the reference engine", () => {
  const engine = createReferenceEngine({ baseModels: { oracle: directory } });
  afterAll(() => engine.close());

  test.each(NAMED)("%s: the gradient agrees to float32 log-probabilities", async (_, item) => {
    const model = await engine.createModel({ base: "oracle", seed: 0 });
    const { rows, loss } = gradientOf(item, await engine.forward(model, batch.rows));
    await engine.forwardBackward(model, rows, loss);
    const found = engine.gradients(model);
    for (const [name, values] of Object.entries(item.gradients)) expect(relativeError(found.get(name)!, values), name).toBeLessThan(1e-5);
  });
});

describe("the trainer of TRL", () => {
  const shared = NAMED.filter(([, { trl }]) => trl !== null);

  test("has three of the settings", () => {
    expect(shared).toHaveLength(3);
  });

  test.each(shared)("%s: the loss is the same; rewards are sums also with length normalization", (_, { setting, metrics, trl }) => {
    expect(relativeError([trl!.loss], [metrics.loss])).toBeLessThan(1e-6);
    const names = ["rewards/chosen", "rewards/rejected", "rewards/margins"] as const;
    const differences = names.map((name) => Math.abs(trl![name] - metrics[name]));
    if (setting.length_normalization) expect(Math.min(...differences)).toBeGreaterThan(1e-3);
    else expect(Math.max(...differences)).toBeLessThan(1e-5);
    expect(trl!["rewards/accuracies"]).toBe(metrics["rewards/accuracies"]);
    for (const name of ["logps/chosen", "logps/rejected"] as const) expect(Math.abs(trl![name] - metrics[name])).toBeLessThan(1e-5);
  });
});
