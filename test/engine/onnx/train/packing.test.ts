import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { readModelConfig } from "../../../../src/engine/onnx/model/config.ts";
import { batchLimits, planBatches } from "../../../../src/engine/onnx/train/batch.ts";
import { Trainer } from "../../../../src/engine/onnx/train/trainer.ts";
import type { LossSpec, Row } from "../../../../src/engine/port.ts";
import { startHelper } from "../../../support/start-helper.ts";

const directory = join(import.meta.dirname, "../../../oracle/llama/model");
const { signal } = new AbortController();

/** A group of rollouts of one prompt: trained after the prompt, of different lengths, two of them alike. */
function group(prompt: number, promptLength: number, lengths: readonly number[]): Row[] {
  return lengths.map((length, i) => {
    const tokens = Int32Array.from({ length: promptLength + length }, (_, t) =>
      t < promptLength ? (prompt * 7 + t * 5) % 48 : ((i % 3) * 11 + t * 3) % 48,
    );
    return {
      tokens,
      weights: Float32Array.from(tokens, (_, t) => (t < promptLength ? 0 : 0.02 * (1 + (t % 3)))),
      advantages: Float32Array.from(tokens, (_, t) => (t < promptLength ? 0 : ((i * 5) % 7) - 3)),
      logprobs: Float32Array.from(tokens, (_, t) => (t % 4 === 0 ? Number.NaN : -3)),
    };
  });
}

describe("rows with a shared prefix", () => {
  const rows = [...group(1, 12, [5, 9, 9, 2, 1]), ...group(2, 10, [4]), ...group(3, 15, [3, 8]), ...group(4, 4, [6, 7])];

  test("are packed with the shared tokens once if that saves work", () => {
    const packed = planBatches(rows, { maxTokens: 4096, maxSharing: 4096, maxTrained: 4096, minRows: 1, pairCost: 1 / 384 }).flatMap(
      (batch) => batch.groups,
    );
    const byFirst = packed.toSorted((a, b) => a.members[0]! - b.members[0]!);
    expect(byFirst.map(({ members }) => members)).toEqual([[0, 1, 2, 3, 4], [5], [6, 7], [8], [9]]);
    // 12 shared tokens and the continuations without their last tokens, which predict nothing.
    expect(byFirst[0]).toMatchObject({ shared: 12, length: 33 });
    expect(byFirst[0]!.continuations.map(({ length }) => length)).toEqual([4, 8, 8, 1, 0]);
  });

  test.each<LossSpec>([
    { kind: "cross-entropy" },
    { kind: "cispo", epsilon: 0.5, epsilonHigh: 0.5 },
    { kind: "ppo", epsilon: 0.2, epsilonHigh: 0.2 },
    { kind: "cispo", epsilon: 0.5, epsilonHigh: 0.5, entropyCoefficient: 0.4 },
  ])("$kind, entropy bonus $entropyCoefficient: have the log-probabilities and gradients of each row alone", async (loss) => {
    const trainer = new Trainer({ threads: 1 });
    const [packed, single] = [
      await trainer.createModel({ id: "m", directory }, { seed: 0 }),
      await trainer.createModel({ id: "m", directory }, { seed: 0 }),
    ];
    const whole = await trainer.forwardBackward(packed, rows, loss, signal);
    const alone: Float32Array[] = [];
    for (const row of rows) alone.push((await trainer.forwardBackward(single, [row], loss, signal)).logprobs[0]!);
    whole.logprobs.forEach((logprobs, i) => logprobs.forEach((x, t) => expect(Math.abs(x - alone[i]![t]!)).toBeLessThan(1e-5)));
    const [a, b] = [trainer.gradients(packed), trainer.gradients(single)];
    const scale = b.reduce((most, x) => Math.max(most, Math.abs(x)), 0);
    expect(a.reduce((worst, x, i) => Math.max(worst, Math.abs(x - b[i]!)), 0) / scale).toBeLessThan(1e-5);
  });

  test("compute a long prompt once, in blocks of queries, with the results of each row alone", async () => {
    const long = [...group(1, 150, [60, 90, 40, 61]), ...group(2, 300, [20, 31])];
    const packed = planBatches(long, { maxTokens: 1024, maxSharing: 1024, maxTrained: 4096, minRows: 1, pairCost: 1 / 384 }).flatMap(
      (batch) => batch.groups,
    );
    expect(packed.map(({ members, shared }) => [members.length, shared])).toEqual([
      [2, 300],
      [4, 150],
    ]);
    const trainer = new Trainer({ threads: 1 });
    const [together, alone] = [await shipped(trainer), await shipped(trainer)];
    const whole = await trainer.forwardBackward(together, long, { kind: "cross-entropy" }, signal);
    for (const [i, row] of long.entries()) {
      const single = await trainer.forwardBackward(alone, [row], { kind: "cross-entropy" }, signal);
      expect(furthest(whole.logprobs[i]!, single.logprobs[0]!)).toBeLessThan(1e-5);
    }
    const [a, b] = [trainer.gradients(together), trainer.gradients(alone)];
    expect(furthest(a, b) / largest(b)).toBeLessThan(1e-5);
  });
});

describe("trained tokens", () => {
  const alike = (count: number, trained: number) =>
    Array.from({ length: count }, (): Row => {
      const tokens = Int32Array.from({ length: 20 }, (_, t) => t);
      return { tokens, weights: Float32Array.from(tokens, (_, t) => (t >= 20 - trained ? 1 : 0)) };
    });

  test("of a batch are bounded, also for equal rows that share all tokens", () => {
    const batches = planBatches(alike(300, 10), { maxTokens: 4096, maxSharing: 4096, maxTrained: 512, minRows: 1, pairCost: 1 / 384 });
    const members = batches.map(({ groups }) => groups.flatMap((group) => group.members));
    expect(members.flat().toSorted((a, b) => a - b)).toEqual(Array.from({ length: 300 }, (_, i) => i));
    expect(members.map(({ length }) => length)).toEqual([51, 51, 51, 51, 51, 45]);
    const [long] = planBatches(alike(1, 19), { maxTokens: 4096, maxSharing: 4096, maxTrained: 10, minRows: 1, pairCost: 1 / 384 });
    expect(long!.groups[0]!.trained).toBe(19);
  });

  test("are limited by the memory of their logits, 512 to 2048", async () => {
    const config = await readModelConfig(directory);
    const limitOf = (vocabularySize: number) => batchLimits({ ...config, vocabularySize }).maxTrained;
    expect(limitOf(50_000) * 50_000 * 12).toBeLessThanOrEqual(1e9);
    expect(limitOf(50_000)).toBeGreaterThan(1024);
    expect(limitOf(1_000_000)).toBe(512);
    expect(limitOf(48)).toBe(2048);
  });

  test("have the same gradient in one batch and in several", async () => {
    const trainer = new Trainer({ threads: 1 });
    const rows = alike(40, 10);
    const [together, apart] = [await shipped(trainer), await shipped(trainer)];
    await trainer.forwardBackward(together, rows, { kind: "cross-entropy" }, signal);
    for (const part of [rows.slice(0, 17), rows.slice(17)]) await trainer.forwardBackward(apart, part, { kind: "cross-entropy" }, signal);
    const [a, b] = [trainer.gradients(together), trainer.gradients(apart)];
    expect(furthest(a, b) / largest(b)).toBeLessThan(1e-5);
  });
});

test("planning reads each row a bounded number of times", () => {
  const tokens = Int32Array.from({ length: 20 }, (_, t) => t);
  let looks = 0;
  const rows = Array.from({ length: 2000 }, () => ({
    get tokens() {
      looks++;
      return tokens;
    },
    weights: new Float32Array(20),
  }));
  const batches = planBatches(rows, { maxTokens: 4096, maxSharing: 4096, maxTrained: 512, minRows: 1, pairCost: 1 / 384 });
  expect(batches.map((batch) => batch.groups.map(({ members }) => members.length))).toEqual([[2000]]);
  expect(looks).toBeLessThan(10 * 2000);
});

test("the gradient does not depend on the division of rows into batches", async () => {
  const rows = [...group(1, 4, [30, 60, 120, 250]), ...group(2, 5, [33, 77, 130, 200])];
  const results: Float32Array[] = [];
  for (const maxBatchTokens of [128, 4096]) {
    const trainer = new Trainer({ threads: 2, maxBatchTokens, startHelper });
    const id = await shipped(trainer);
    await trainer.forwardBackward(id, rows, { kind: "cispo", epsilon: 0.2, epsilonHigh: 0.2 }, signal);
    results.push(trainer.gradients(id));
  }
  expect(furthest(results[0]!, results[1]!) / largest(results[1]!)).toBeLessThan(1e-5);
});

test("a row padded beyond the model's context has the same log-probabilities alone and in a batch", async () => {
  const config = await readModelConfig(directory);
  const trainer = new Trainer({ threads: 1 });
  const id = await trainer.createModel({ id: "m", directory }, { seed: 0 });
  const rowOf = (length: number): Row => ({
    tokens: Int32Array.from({ length }, (_, t) => (t * 7) % 40),
    weights: new Float32Array(length).fill(1, 1),
  });
  const rows = Array.from({ length: 24 }, (_, i) => rowOf(config.contextLength - i));
  const together = await trainer.forward(id, rows, signal);
  for (const [i, row] of rows.entries()) {
    const [alone] = await trainer.forward(id, [row], signal);
    expect(furthest(alone!, together[i]!)).toBeLessThan(1e-5);
  }
});

/** A model of the shipped shape, random weights. */
function shipped(trainer: Trainer): Promise<string> {
  return trainer.createModel(
    { id: "tiny", directory: join(import.meta.dirname, "../../../../models/whetstone-tiny") },
    { seed: 1, fresh: true },
  );
}

function furthest(a: Float32Array, b: Float32Array): number {
  return a.reduce((worst, x, i) => Math.max(worst, Math.abs(x - b[i]!)), 0);
}

function largest(a: Float32Array): number {
  return a.reduce((most, x) => Math.max(most, Math.abs(x)), 0);
}
