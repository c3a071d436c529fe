/** Batches of large models: long shared prompts, and few sizes to plan for. */
import { join } from "node:path";
import fc from "fast-check";
import { expect, test } from "vitest";
import { readModelConfig } from "../../../../src/engine/onnx/model/config.ts";
import { isLarge } from "../../../../src/engine/onnx/model/size.ts";
import { batchLimits, planBatches, plannedSize, positionsIn } from "../../../../src/engine/onnx/train/batch.ts";
import { memoryPlan } from "../../../../src/engine/onnx/train/memory-plan.ts";
import { graphShape } from "../../../../src/engine/onnx/train/query-blocks.ts";
import type { Row } from "../../../../src/engine/port.ts";
import { ROOT } from "../../../project/files.ts";

/** Shape of SmolLM2-135M. */
const config = {
  ...(await readModelConfig(join(ROOT, "test/oracle/families/llama3/model"))),
  layers: 30,
  hiddenSize: 576,
  innerSize: 1536,
  heads: 9,
  kvHeads: 3,
  headSize: 64,
  vocabularySize: 49_152,
};

const limits = batchLimits(config);

/** Groups of eight rows: tokens that all rows share, then tokens that a group shares, then tokens of the row, which are trained. */
function rowsOf(groups: number, everyone: number, group: number, own: number): Row[] {
  return Array.from({ length: 8 * groups }, (_, row): Row => {
    const tokens = Int32Array.from({ length: everyone + group + own }, (__, t) =>
      t < everyone ? t : 1000 + t + 1000 * (t < everyone + group ? Math.floor(row / 8) : 100 + row),
    );
    return { tokens, weights: Float32Array.from(tokens, (__, t) => Number(t >= everyone + group)) };
  });
}

const planOf = (size: { positions: number; entries: number }) => {
  const { positions, entries } = plannedSize(config, size);
  return memoryPlan(config, positions, entries);
};

const plans = (rows: readonly Row[]) =>
  planBatches(rows, limits).map((batch) => ({
    positions: positionsIn(batch),
    plan: planOf({ positions: positionsIn(batch), entries: batch.groups.reduce((sum, { trained }) => sum + trained, 0) }),
  }));

test("the model has the shape of a large model", () => {
  expect(isLarge(config)).toBe(true);
});

test("a prompt longer than a small batch is computed once for many rows", () => {
  const rows = rowsOf(6, 480, 50, 75);
  const computed = plans(rows).reduce((sum, { positions }) => sum + positions, 0);
  const given = rows.reduce((sum, { tokens }) => sum + tokens.length, 0);
  expect(computed).toBeLessThan(given / 3);
});

test("rows of a short prompt run in batches that recompute nothing", () => {
  for (const { plan } of plans(rowsOf(4, 0, 40, 64))) expect(plan.recomputedLayers).toBe(0);
});

test("batches of all sizes up to the largest have at most three plans", () => {
  const found = new Set<string>();
  fc.assert(
    fc.property(fc.integer({ min: 1, max: limits.maxSharing }), fc.double({ min: 0, max: 1, noNaN: true }), (positions, share) => {
      found.add(JSON.stringify(planOf({ positions, entries: Math.ceil(Math.min(positions, limits.maxTrained) * share) + 1 })));
    }),
    { numRuns: 500 },
  );
  expect(found.size).toBeLessThanOrEqual(3);
});

test("a longer batch recomputes at least as many layers, and keeps at most the budget of a small batch", () => {
  const recomputed = [1, 2, 4, 8].map((size) => planOf({ positions: size * limits.maxTokens, entries: 256 }).recomputedLayers);
  expect(recomputed).toEqual([...recomputed].sort((a, b) => a - b));
  expect(recomputed[0]).toBe(0);
  expect(recomputed.at(-1)).toBeGreaterThan(config.layers / 2);
});

test("groups of rows of many lengths with a short prompt, of which all groups share a part, recompute nothing, and need few graphs", () => {
  const lengths = fc.array(fc.integer({ min: 8, max: 90 }), { minLength: 8, maxLength: 8 });
  fc.assert(
    fc.property(fc.array(lengths, { minLength: 4, maxLength: 16 }), fc.integer({ min: 0, max: 32 }), (groups, common) => {
      const rows = groups.flat().map((length, row): Row => {
        const group = Math.floor(row / 8);
        const tokens = Int32Array.from({ length: 40 + length }, (_, t) =>
          t < common ? t : 1000 + t + 1000 * (t < 40 ? group : 100 + row),
        );
        return { tokens, weights: Float32Array.from(tokens, (_, t) => Number(t >= 40)) };
      });
      for (const { plan } of plans(rows)) expect(plan.recomputedLayers).toBe(0);
      expect(new Set(planBatches(rows, limits).map((batch) => JSON.stringify(graphShape(batch)))).size).toBeLessThanOrEqual(2);
    }),
    { numRuns: 50, seed: 1 },
  );
});
