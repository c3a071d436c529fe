/** Behaviours of training, required of every engine. */
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { gunzipSync } from "node:zlib";
import { describe, expect, it, onTestFinished } from "vitest";
import type { Row } from "../../../src/engine/port.ts";
import {
  BASE,
  codeOf,
  CONTEXT,
  largestDifference,
  LOSSES,
  lossOf,
  newModel,
  plainStep,
  rowsOf,
  sampledRows,
  scratchDirectory,
  type Subject,
  tokensOf,
  train,
  VOCABULARY,
} from "./subject.ts";

/** Reads the values of `test/oracle/llama.py`. */
async function oracle(): Promise<{ rows: number[][]; logprobs: number[][] }> {
  const text = gunzipSync(await readFile(join(import.meta.dirname, "../../oracle/llama/expected.json.gz"))).toString();
  return JSON.parse(text) as { rows: number[][]; logprobs: number[][] };
}

/** Difference of log-probabilities between -8 and -16 by five roundings: their distance in float32 is 9.5e-7, and it depends on the processor. */
const ROUNDING = 5e-6;

/** Declares the tests; `get` gives the engine once it has started. */
export function trainingBehaviours(get: () => Subject): void {
  describe("a base model", () => {
    it("is described by its configuration; an unknown base model is not found", async () => {
      const { engine } = get();
      expect(engine.capabilities().baseModels).toContain(BASE);
      expect(await engine.describeBase(BASE)).toMatchObject({ id: BASE, vocabularySize: VOCABULARY, contextLength: CONTEXT });
      expect(await codeOf(engine.describeBase("nobody/knows-this"))).toBe("E_NOT_FOUND");
      expect(await codeOf(engine.createModel({ base: "nobody/knows-this", seed: 0, lora: get().lora }))).toBe("E_NOT_FOUND");
    });

    it("has the log-probabilities that transformers computes, aligned with the tokens, 0 where the weight is 0", async () => {
      const { engine, tolerance = 2e-5 } = get();
      const model = await newModel(get());
      const { rows, logprobs } = await oracle();
      const given = rows.map((tokens) => ({
        tokens: Int32Array.from(tokens),
        weights: Float32Array.from(tokens, (_, t) => (t === 0 || t === 3 ? 0 : 1)),
      }));
      const found = await engine.forward(model, given);
      const wanted = logprobs.map((row) => row.map((value, t) => (t === 0 || t === 3 ? 0 : value)));
      expect(found.map(({ length }) => length)).toEqual(rows.map(({ length }) => length));
      expect(largestDifference(found, wanted)).toBeLessThan(tolerance);
    });
  });

  describe("a gradient", () => {
    it.each(LOSSES)("$kind: log-probabilities and loss match the definition Σ weights·L", async (loss) => {
      const { engine } = get();
      const model = await newModel(get());
      await train(engine, model);
      const rows = await sampledRows(engine, model, rowsOf(5));
      const { logprobs, metrics } = await engine.forwardBackward(model, rows, loss);
      expect(largestDifference(logprobs, await engine.forward(model, rows))).toBeLessThan(1e-5);
      expect(metrics.tokens).toBe(rows.reduce((sum, { weights }) => sum + weights.filter((weight) => weight !== 0).length, 0));
      expect(metrics.loss).toBeCloseTo(lossOf(loss, rows, logprobs), 4);
    });

    it.each(LOSSES)("$kind: a small gradient step lowers the loss by rate · norm²", async (loss) => {
      const { engine } = get();
      const model = await newModel(get());
      await train(engine, model);
      const rows = await sampledRows(engine, model, rowsOf(5));
      const { metrics } = await engine.forwardBackward(model, rows, loss);
      // A cispo ratio is a constant of its gradient, so what falls is the loss with the ratios of before.
      const frozen = loss.kind === "cispo" ? await frozenRatios(get(), model, rows, loss) : null;
      const before = frozen === null ? metrics.loss : frozen(await engine.forward(model, rows));
      const rate = 2e-4;
      const { gradNorm } = await engine.optimStep(model, plainStep(rate));
      const after = await engine.forward(model, rows);
      const fall = before - (frozen === null ? lossOf(loss, rows, after) : frozen(after));
      expect(gradNorm).toBeGreaterThan(0);
      expect(fall / (rate * gradNorm! ** 2)).toBeGreaterThan(0.95);
      expect(fall / (rate * gradNorm! ** 2)).toBeLessThan(1.05);
    });

    it("accumulates over calls, independent of order and batching", async () => {
      const { engine } = get();
      const [whole, parts] = [await newModel(get()), await newModel(get())];
      for (const model of [whole, parts]) await train(engine, model, 1);
      const rows = rowsOf(5, 1);
      await engine.forwardBackward(whole, rows, { kind: "cross-entropy" });
      for (const row of rows.toReversed()) await engine.forwardBackward(parts, [row], { kind: "cross-entropy" });
      const [a, b] = [await engine.optimStep(whole, plainStep(0.1)), await engine.optimStep(parts, plainStep(0.1))];
      expect(Math.abs(a.gradNorm! / b.gradNorm! - 1)).toBeLessThan(1e-4);
      expect(largestDifference(await engine.forward(whole, rows), await engine.forward(parts, rows))).toBeLessThan(1e-5);
    });

    it("takes the ratio as 1 for a token with unknown old log-probability", async () => {
      const { engine } = get();
      const [known, unknown] = [await newModel(get()), await newModel(get())];
      for (const model of [known, unknown]) await train(engine, model, 1);
      const rows = rowsOf(3, 2);
      for (const loss of LOSSES.slice(1)) {
        const now = await engine.forward(known, rows);
        // One row in which every old one is unknown, and one in which some are.
        const blank = rows.map((row, i) => ({ ...row, logprobs: now[i]!.map((n, t) => (i === 0 || t % 2 === 0 ? NaN : n)) }));
        const filled = rows.map((row, i) => ({ ...row, logprobs: now[i]! }));
        await engine.forwardBackward(known, filled, loss);
        await engine.forwardBackward(unknown, blank, loss);
        const [a, b] = [await engine.optimStep(known, plainStep(1e-2)), await engine.optimStep(unknown, plainStep(1e-2))];
        expect(Math.abs(a.gradNorm! / b.gradNorm! - 1)).toBeLessThan(1e-3);
        const after = await engine.forward(known, rows);
        expect(largestDifference(after, now)).toBeGreaterThan(1e-4);
        expect(largestDifference(after, await engine.forward(unknown, rows))).toBeLessThan(1e-5);
      }
    });

    it("includes an entropy bonus, or rejects the bonus by name if the engine has none", async () => {
      const { engine } = get();
      const [plain, bonus] = [await newModel(get()), await newModel(get())];
      for (const model of [plain, bonus]) await train(engine, model);
      const rows = await sampledRows(engine, plain, rowsOf(5));
      for (const loss of LOSSES) {
        if (loss.kind === "cross-entropy") continue;
        const call = () => engine.forwardBackward(bonus, rows, { ...loss, entropyCoefficient: 0.5 });
        if (engine.capabilities().entropyBonus !== true) {
          await expect(call()).rejects.toMatchObject({ code: "E_UNSUPPORTED", param: "entropy_coef" });
          continue;
        }
        const { metrics } = await call();
        const { metrics: without } = await engine.forwardBackward(plain, rows, loss);
        expect(without.weightedEntropy).toBeUndefined();
        expect(metrics.entropy).toBeCloseTo(without.entropy, 3);
        expect(metrics.weightedEntropy).toBeGreaterThan(0.1);
        expect(metrics.loss).toBeCloseTo(without.loss - 0.5 * metrics.weightedEntropy!, 4);
      }
    });

    it("rejects a negative entropy coefficient", async () => {
      const { engine } = get();
      const model = await newModel(get());
      if (engine.capabilities().entropyBonus !== true) return;
      const loss = { kind: "cispo", epsilon: 0.2, epsilonHigh: 0.3 } as const;
      for (const entropyCoefficient of [-0.1, Number.NaN]) {
        const call = engine.forwardBackward(model, rowsOf(2), { ...loss, entropyCoefficient });
        await expect(call).rejects.toMatchObject({ code: "E_ARGUMENT", param: "loss" });
      }
    });

    it("has the opposite sign for negative weights of a cross-entropy", async () => {
      const { engine } = get();
      const [positive, negative] = [await newModel(get()), await newModel(get())];
      for (const model of [positive, negative]) await train(engine, model, 1);
      const rows = rowsOf(4);
      const loss = { kind: "cross-entropy" } as const;
      const before = lossOf(loss, rows, await engine.forward(positive, rows));
      const one = await engine.forwardBackward(positive, rows, loss);
      const other = await engine.forwardBackward(negative, scaledRows(rows, -1), loss);
      expect(other.metrics.loss).toBeCloseTo(-one.metrics.loss, 5);
      expect(other.metrics.tokens).toBe(one.metrics.tokens);
      const [down, up] = [await engine.optimStep(positive, plainStep(2e-4)), await engine.optimStep(negative, plainStep(2e-4))];
      expect(Math.abs(up.gradNorm! / down.gradNorm! - 1)).toBeLessThan(1e-4);
      const fall = before - lossOf(loss, rows, await engine.forward(positive, rows));
      const rise = lossOf(loss, rows, await engine.forward(negative, rows)) - before;
      expect(fall).toBeGreaterThan(0);
      expect(Math.abs(rise / fall - 1)).toBeLessThan(0.1);
    });

    it("is zero for rows without a weight other than 0", async () => {
      const { engine } = get();
      const model = await newModel(get());
      const { logprobs, metrics } = await engine.forwardBackward(model, scaledRows(rowsOf(3), 0), { kind: "cross-entropy" });
      expect(metrics).toMatchObject({ loss: 0, tokens: 0 });
      expect(largestDifference(logprobs, await engine.forward(model, scaledRows(rowsOf(3), 0)))).toBe(0);
      expect((await engine.optimStep(model, plainStep(1))).gradNorm).toBe(0);
    });

    it("is zero after the step", async () => {
      const { engine } = get();
      const model = await newModel(get());
      await engine.forwardBackward(model, rowsOf(2), { kind: "cross-entropy" });
      expect((await engine.optimStep(model, plainStep(0))).gradNorm).toBeGreaterThan(0);
      expect((await engine.optimStep(model, plainStep(0))).gradNorm).toBe(0);
    });

    it("stays zero after a call that was aborted before it began, which rejects with the signal's own reason", async () => {
      const { engine } = get();
      const model = await newModel(get());
      const reason = new Error("enough");
      const signal = AbortSignal.abort(reason);
      await expect(engine.forwardBackward(model, rowsOf(2), { kind: "cross-entropy" }, { signal })).rejects.toBe(reason);
      await expect(engine.forward(model, rowsOf(2), { signal })).rejects.toBe(reason);
      expect((await engine.optimStep(model, plainStep(0))).gradNorm).toBe(0);
    });
  });

  describe("a step", () => {
    it("reports the norm before clipping and applies the clipped gradient, or rejects clipping if the engine cannot clip", async () => {
      const { engine } = get();
      const { clipsGradients = true } = engine.capabilities();
      const [free, clipped] = [await newModel(get()), await newModel(get())];
      const rows = rowsOf(4);
      for (const model of [free, clipped]) await engine.forwardBackward(model, rows, { kind: "cross-entropy" });
      const before = await engine.forward(free, rows);
      const { gradNorm } = await engine.optimStep(free, plainStep(1e-2));
      const half = { ...plainStep(2e-2), maxGradNorm: gradNorm! / 2 };
      if (!clipsGradients) return expect(await codeOf(engine.optimStep(clipped, half))).toBe("E_UNSUPPORTED");
      expect(Math.abs((await engine.optimStep(clipped, half)).gradNorm! / gradNorm! - 1)).toBeLessThan(1e-5);
      const [a, b] = [await engine.forward(free, rows), await engine.forward(clipped, rows)];
      expect(largestDifference(a, before)).toBeGreaterThan(1e-4);
      expect(largestDifference(a, b)).toBeLessThan(1e-5);
    });

    it("moves every weight by the learning rate in the first step, independent of the gradient's scale", async () => {
      const { engine } = get();
      const [once, thrice] = [await newModel(get()), await newModel(get())];
      const rows = rowsOf(4);
      const before = await engine.forward(once, rows);
      for (const [model, scale] of [
        [once, 1],
        [thrice, 3],
      ] as const) {
        await engine.forwardBackward(model, scaledRows(rows, scale), { kind: "cross-entropy" });
        expect(await engine.optimStep(model, { learningRate: 1e-3, epsilon: 1e-12 })).toMatchObject({ step: 1 });
      }
      const after = await engine.forward(once, rows);
      expect(largestDifference(after, before)).toBeGreaterThan(1e-3);
      expect(largestDifference(after, await engine.forward(thrice, rows))).toBeLessThan(1e-4);
    });

    it("applies AdamW's formula: decayed moments, both bias corrections, ε added to the root", async () => {
      const { engine } = get();
      const [third, first] = [await newModel(get()), await newModel(get())];
      const rows = rowsOf(4);
      const before = await engine.forward(third, rows);
      const { beta1, beta2, epsilon, learningRate } = { beta1: 0.8, beta2: 0.9, epsilon: 1e-3, learningRate: 2e-2 };
      // A learning rate of 0 keeps the weights, so the gradients of the three steps are multiples of one gradient g.
      const scales = [4, 1, 0.5];
      let [m, v] = [0, 0];
      for (const [index, scale] of scales.entries()) {
        [m, v] = [beta1 * m + (1 - beta1) * scale, beta2 * v + (1 - beta2) * scale ** 2];
        await engine.forwardBackward(third, scaledRows(rows, scale), { kind: "cross-entropy" });
        const isLast = index === scales.length - 1;
        await engine.optimStep(third, { beta1, beta2, epsilon, learningRate: isLast ? learningRate : 0 });
      }
      // The third step is −rate·M·g / (√V·|g| + ε), with the bias-corrected moments M and V of g = 1: a first step with rate·M/√V and ε/√V.
      const [mean, root] = [m / (1 - beta1 ** scales.length), Math.sqrt(v / (1 - beta2 ** scales.length))];
      await engine.forwardBackward(first, rows, { kind: "cross-entropy" });
      await engine.optimStep(first, { beta1, beta2, epsilon: epsilon / root, learningRate: (learningRate * mean) / root });
      const [a, b] = [await engine.forward(third, rows), await engine.forward(first, rows)];
      expect(largestDifference(a, before)).toBeGreaterThan(1e-2);
      expect(largestDifference(a, b)).toBeLessThan(2e-5);
    });

    it("decays both matrices of an adapter, also of rank 1", async () => {
      const { engine } = get();
      const rows = rowsOf(4);
      const model = await engine.createModel({ base: BASE, seed: 5, lora: { rank: 1 } });
      onTestFinished(() => engine.unload(model));
      const base = await engine.forward(model, rows);
      await engine.forwardBackward(model, rows, { kind: "cross-entropy" });
      await engine.optimStep(model, { learningRate: 1e-3 });
      const before = await engine.forward(model, rows);
      // Without gradient and memory a step is the decay alone: it halves each matrix, and so quarters their product.
      await engine.optimStep(model, { learningRate: 0.5, weightDecay: 1, beta1: 0, beta2: 0, epsilon: 1 });
      const after = await engine.forward(model, rows);
      expect(largestDifference(before, base)).toBeGreaterThan(1e-4);
      const scale = largestDifference(after, base) / largestDifference(before, base);
      expect(Math.abs(scale - 0.25)).toBeLessThan(0.05);
    });

    it("counts from 1 again after the optimizer is reset; the weights stay", async () => {
      const { engine } = get();
      const model = await newModel(get());
      const rows = rowsOf(4);
      await train(engine, model, 2);
      const before = await engine.forward(model, rows);
      await engine.resetOptimizer(model);
      expect(largestDifference(await engine.forward(model, rows), before)).toBeLessThan(ROUNDING);
      await engine.forwardBackward(model, rows, { kind: "cross-entropy" });
      expect(await engine.optimStep(model, { learningRate: 0 })).toMatchObject({ step: 1 });
    });

    it("drops the accumulated gradients when the optimizer is reset", async () => {
      const { engine } = get();
      const [reset, plain] = [await newModel(get()), await newModel(get())];
      await engine.forwardBackward(reset, rowsOf(2), { kind: "cross-entropy" });
      await engine.resetOptimizer(reset);
      for (const model of [reset, plain]) await train(engine, model, 1);
      expect(largestDifference(await engine.forward(reset, rowsOf(4)), await engine.forward(plain, rowsOf(4)))).toBeLessThan(ROUNDING);
    });

    it("has no memory of the moments after a reset", async () => {
      const { engine } = get();
      const [reset, plain] = [await newModel(get()), await newModel(get())];
      const rows = rowsOf(4);
      for (const model of [reset, plain]) await train(engine, model, 2);
      await engine.resetOptimizer(reset);
      const before = await engine.forward(reset, rows);
      for (const model of [reset, plain]) await engine.forwardBackward(model, rows, { kind: "cross-entropy" });
      // With so large an ε the second moment has no effect: a first step is proportional to the gradient, with and without moments.
      const { learningRate, epsilon } = plainStep(1e-2);
      await engine.optimStep(reset, { learningRate, epsilon });
      await engine.optimStep(plain, plainStep(1e-2));
      const [a, b] = [await engine.forward(reset, rows), await engine.forward(plain, rows)];
      expect(largestDifference(a, before)).toBeGreaterThan(1e-4);
      expect(largestDifference(a, b)).toBeLessThan(1e-5);
    });
  });

  describe("a saved state", () => {
    it("continues with the same steps in a new model and in a model with other weights", async () => {
      const { engine } = get();
      const model = await newModel(get());
      const rows = rowsOf(4);
      await train(engine, model, 2);
      const path = await scratchDirectory();
      await engine.saveState(model, path);
      const resumed = await newModel(get(), path);
      const other = await newModel(get());
      await train(engine, other, 1, rowsOf(2, 9));
      await engine.forwardBackward(other, rows, { kind: "cross-entropy" });
      await engine.loadState(other, path);
      const steps = [];
      for (const each of [model, resumed, other]) {
        await engine.forwardBackward(each, rows, { kind: "cross-entropy" });
        steps.push(await engine.optimStep(each, { learningRate: 1e-2 }));
      }
      expect(steps.map(({ step }) => step)).toEqual([3, 3, 3]);
      for (const { gradNorm } of steps) expect(Math.abs(gradNorm! / steps[0]!.gradNorm! - 1)).toBeLessThan(1e-5);
      const [wanted, ...found] = await Promise.all([model, resumed, other].map((each) => engine.forward(each, rows)));
      for (const each of found) expect(largestDifference(each, wanted!)).toBeLessThan(1e-5);
    });

    it("is rejected with E_DATA if it is missing or belongs to another adapter shape", async () => {
      const { engine, lora } = get();
      const path = await scratchDirectory();
      const create = (rank: number, from: string) => engine.createModel({ base: BASE, seed: 0, lora: { rank }, from });
      expect(await codeOf(create(lora.rank, path))).toBe("E_DATA");
      const model = await engine.createModel({ base: BASE, seed: 0, lora });
      await engine.saveState(model, path);
      await engine.unload(model);
      expect(await codeOf(create(lora.rank + 1, path))).toBe("E_DATA");
    });
  });

  describe("an error", () => {
    it("names the parameter and says whether a retry can help", async () => {
      const { engine, lora } = get();
      const final = (code: string, param: string | null) => ({ code, param, retryable: false });
      const unknown = "nobody/knows-this";
      await expect(engine.describeBase(unknown)).rejects.toMatchObject(final("E_NOT_FOUND", "base_model"));
      await expect(engine.createModel({ base: unknown, seed: 0, lora })).rejects.toMatchObject(final("E_NOT_FOUND", "base_model"));
      await expect(engine.loadPolicy({ base: unknown })).rejects.toMatchObject(final("E_NOT_FOUND", "base_model"));
      const empty = await scratchDirectory();
      await expect(engine.createModel({ base: BASE, seed: 0, lora, from: empty })).rejects.toMatchObject(final("E_DATA", null));
      const model = await engine.createModel({ base: BASE, seed: 0, lora });
      const shorter = { tokens: tokensOf(1, 3), weights: Float32Array.of(0, 1) };
      await expect(engine.forward(model, [shorter])).rejects.toMatchObject(final("E_ARGUMENT", "rows"));
      await engine.unload(model);
      await expect(engine.forward(model, rowsOf(1))).rejects.toMatchObject(final("E_NOT_FOUND", null));
    });
  });

  describe("models", () => {
    it("are independent of each other; training one does not change the base", async () => {
      const { engine, lora } = get();
      const rows = rowsOf(3);
      const fresh = () => engine.createModel({ base: BASE, seed: 1, lora });
      const [trained, untouched] = [await fresh(), await fresh()];
      const base = await engine.forward(untouched, rows);
      await train(engine, trained);
      expect(largestDifference(await engine.forward(trained, rows), base)).toBeGreaterThan(1e-3);
      expect(largestDifference(await engine.forward(untouched, rows), base)).toBe(0);
      const another = await fresh();
      expect(largestDifference(await engine.forward(another, rows), base)).toBeLessThan(ROUNDING);
      for (const model of [trained, untouched, another]) await engine.unload(model);
      expect(await codeOf(engine.forward(trained, rows))).toBe("E_NOT_FOUND");
    });

    it("are trained in full if the engine supports it, and rejected otherwise", async () => {
      const { engine } = get();
      const { fullParameter } = engine.capabilities();
      const work = engine.createModel({ base: BASE, seed: 0 });
      expect(await codeOf(work)).toBe(fullParameter ? null : "E_UNSUPPORTED");
      if (fullParameter) await engine.unload(await work);
    });

    it("reject invalid rows with the row's index", async () => {
      const { engine } = get();
      const model = await newModel(get());
      const good = { tokens: tokensOf(1, 3), weights: Float32Array.of(0, 1, 1) };
      const ppo = LOSSES[2]!;
      const refused = async (row: object, loss = LOSSES[0]!) => {
        const work = engine.forwardBackward(model, [good, { ...good, ...row }].map(withPolicy), loss);
        const expected = { code: "E_ARGUMENT", param: "rows", retryable: false, message: expect.stringContaining("Row 1") as string };
        await expect(work).rejects.toMatchObject(expected);
      };
      await refused({ weights: Float32Array.of(1, 1, 1) });
      await refused({ weights: Float32Array.of(0, 1) });
      await refused({ weights: Float32Array.of(0, 1, NaN) });
      await refused({ tokens: Int32Array.of(1, 2, VOCABULARY) });
      await refused({ tokens: Int32Array.of(1), weights: Float32Array.of(0) });
      await refused({ advantages: undefined }, ppo);
      await refused({ logprobs: Float32Array.of(0) }, ppo);
    });
  });
}

const scaledRows = (rows: readonly Row[], scale: number): Row[] =>
  rows.map((row) => ({ ...row, weights: row.weights.map((weight) => weight * scale) }));

const withPolicy = <T extends object>(row: T) => ({ advantages: new Float32Array(3), logprobs: new Float32Array(3), ...row }) as never;

/** The cispo loss as a function of the new log-probabilities, with the clipped ratios of this moment. */
async function frozenRatios(
  { engine }: Subject,
  model: Parameters<Subject["engine"]["forward"]>[0],
  rows: Awaited<ReturnType<typeof sampledRows>>,
  loss: { readonly epsilon: number; readonly epsilonHigh: number },
): Promise<(logprobs: readonly Float32Array[]) => number> {
  const now = await engine.forward(model, rows);
  const clip = (ratio: number) => Math.min(Math.max(ratio, 1 - loss.epsilon), 1 + loss.epsilonHigh);
  const factors = rows.map((row, i) =>
    Float64Array.from(row.weights, (weight, t) =>
      weight === 0 ? 0 : weight * row.advantages![t]! * clip(Math.exp(now[i]![t]! - row.logprobs![t]!)),
    ),
  );
  return (logprobs) => -factors.reduce((sum, row, i) => row.reduce((part, factor, t) => part + factor * logprobs[i]![t]!, sum), 0);
}
