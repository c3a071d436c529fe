import fc from "fast-check";
import { describe, expect, test } from "vitest";
import type { Row } from "../../../../src/engine/port.ts";
import { planBatches } from "../../../../src/engine/onnx/train/batch.ts";
import { findPrefixGroups } from "../../../../src/engine/onnx/train/prefix-groups.ts";
import { forEachTrained, promptOfPackedRows, tokenInputs } from "../../../../src/engine/onnx/train/inputs.ts";
import { uniform } from "../../../../src/base/util/rng.ts";
import { packedMasks } from "../../../../src/engine/onnx/train/masks.ts";
import { graphShape } from "../../../../src/engine/onnx/train/query-blocks.ts";

const limits = { maxTokens: 256, maxSharing: 512, maxTrained: 4096, minRows: 1, pairCost: 1 / 384 };

/** Groups of rows, each on a prompt of its own, no token of a row's own part equal to its neighbors' tokens. */
const groups = fc
  .array(
    fc.record({
      prompt: fc.integer({ min: 1, max: 60 }),
      lengths: fc.array(fc.integer({ min: 1, max: 70 }), { minLength: 1, maxLength: 9 }),
    }),
    {
      minLength: 1,
      maxLength: 6,
    },
  )
  .map((all) =>
    all.flatMap(({ prompt, lengths }, group) =>
      lengths.map((length, i): Row => {
        const tokens = Int32Array.from({ length: prompt + length }, (_, t) => (t < prompt ? 1000 * group + t : 100_000 * (i + 1) + t));
        return { tokens, weights: new Float32Array(tokens.length).fill(1, 1) };
      }),
    ),
  );

describe("prefix groups", () => {
  test("contain every row once; continuations of a packed row do not overlap", () => {
    fc.assert(
      fc.property(groups, (rows) => {
        const groups = findPrefixGroups(rows, limits);
        expect(groups.flatMap(({ members }) => members)).toEqual(rows.map((_, i) => i));
        for (const { members, shared, continuations, packedRows, packedLength, length } of groups) {
          expect(continuations.map((continuation) => continuation.length)).toEqual(members.map((i) => rows[i]!.tokens.length - 1 - shared));
          const taken = new Set<string>();
          for (const { packedRow, start, length: own } of continuations) {
            for (let t = 0; t < own; t++) taken.add(`${packedRow}:${start + t}`);
            if (own > 0) expect(packedRow < packedRows && start + own <= packedLength).toBe(true);
          }
          expect(shared + taken.size).toBe(length);
        }
      }),
    );
  });

  test("need no packed rows for equal rows", () => {
    const tokens = Int32Array.from({ length: 20 }, (_, t) => t);
    const rows = Array.from({ length: 3 }, (): Row => ({ tokens, weights: new Float32Array(20).fill(1, 1) }));
    expect(findPrefixGroups(rows, limits)).toMatchObject([
      { packedRows: 0, packedLength: 0, continuations: [{ length: 0 }, { length: 0 }, { length: 0 }] },
    ]);
    const [batch] = planBatches(rows, limits);
    const places: number[] = [];
    forEachTrained(rows, batch!, (_row, t, position) => places.push(position - (t - 1)));
    expect(places).toEqual(rows.flatMap(() => Array.from({ length: 19 }, () => 0)));
  });

  test("have few long packed rows if attention is cheap, and many short ones if it is expensive", () => {
    const lengths = Array.from({ length: 16 }, () => 12);
    const prompt = Int32Array.from({ length: 40 }, (_, t) => t);
    const rows = lengths.map((length, i): Row => {
      const tokens = Int32Array.of(...prompt, ...Array.from({ length: length + 1 }, (_, t) => 100 * (i + 1) + t));
      return { tokens, weights: new Float32Array(tokens.length).fill(1, 40) };
    });
    const [short] = findPrefixGroups(rows, limits);
    expect(short!.packedRows * short!.packedLength).toBeLessThanOrEqual(1.1 * 16 * 12);
    // Keys that cost nothing: few long packedRows. Keys that cost as much as tokens: many short ones.
    expect(findPrefixGroups(rows, { ...limits, pairCost: 0 })[0]!.packedRows).toBeLessThanOrEqual(2);
    expect(findPrefixGroups(rows, { ...limits, pairCost: 1 })[0]!.packedRows).toBeGreaterThanOrEqual(8);
  });
});

test("a row that the limit of trained tokens separates from its group runs through the graph of the group", () => {
  const rows = Array.from({ length: 5 }, (_, row): Row => {
    const tokens = Int32Array.from({ length: 60 }, (__, t) => (t < 40 ? t : 1000 * (row + 1) + t));
    return { tokens, weights: new Float32Array(60).fill(1, 40) };
  });
  const batches = planBatches(rows, { ...limits, maxTrained: 80 });
  expect(batches.flatMap(({ groups }) => groups.map(({ members }) => members.length))).toEqual(expect.arrayContaining([4, 1]));
  expect(new Set(batches.map((batch) => JSON.stringify(graphShape(batch)))).size).toBe(1);
});

test("rows of many lengths need few graph shapes", () => {
  let drawn = 0;
  const between = (least: number, most: number) => least + Math.floor(uniform(7n, drawn++) * (most - least + 1));
  const shapes = new Set<string>();
  for (let step = 0; step < 5; step++) {
    const rows = Array.from({ length: 16 }, (_, group) => {
      const prompt = between(60, 400);
      return Array.from({ length: 16 }, (__, i): Row => {
        const length = prompt + between(10, 300);
        const tokens = Int32Array.from({ length }, (___, t) => (t < prompt ? 1000 * group + t : 100_000 * (i + 1) + t));
        return { tokens, weights: new Float32Array(length).fill(1, prompt) };
      });
    }).flat();
    for (const batch of planBatches(rows, { ...limits, maxTokens: 1024, maxSharing: 1024 })) shapes.add(JSON.stringify(graphShape(batch)));
  }
  // The trainer keeps eight.
  expect(shapes.size).toBeLessThanOrEqual(12);
  expect(shapes.size).toBeGreaterThan(2);
});

test("a query attends to exactly its own row up to itself", () => {
  fc.assert(
    fc.property(groups, (rows) => {
      for (const batch of planBatches(rows, limits)) {
        const { prompts, packedRows } = tokenInputs(rows, batch);
        const before = batch.prompts?.time ?? 0;
        const masks = packedMasks(batch, 1);
        const size = batch.packedRows.time / masks.length;
        const owners = batch.prompts && promptOfPackedRows(batch, batch.prompts);
        const packedStart = batch.prompts ? batch.prompts.count * batch.prompts.time : 0;
        forEachTrained(rows, batch, (row, t, position) => {
          if (position < packedStart) {
            expect(Number(prompts!.tokens[position])).toBe(row.tokens[t - 1]);
            return;
          }
          const packedRow = Math.floor((position - packedStart) / batch.packedRows.time);
          const query = (position - packedStart) % batch.packedRows.time;
          const { data, shape } = masks[Math.floor(query / size)]!;
          const [maskRows, , lines, keys] = shape;
          const line = ((maskRows === 1 ? 0 : packedRow) * lines + (query % size)) * keys;
          const prompt = owners ? owners.subarray(packedRow * batch.prompts!.count, (packedRow + 1) * batch.prompts!.count).indexOf(1) : -1;
          const seen: number[] = [];
          for (let key = 0; key < keys; key++) {
            if (data[line + key] !== 0) continue;
            seen.push(
              Number(
                key < before ? prompts!.tokens[prompt * before + key] : packedRows.tokens[packedRow * batch.packedRows.time + key - before],
              ),
            );
          }
          expect(seen).toEqual([...row.tokens.subarray(0, t)]);
        });
      }
    }),
  );
});
