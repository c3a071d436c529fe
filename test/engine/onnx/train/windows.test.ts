/** Sliding windows in training and sampling: no token before the window contributes, however rows are packed and prompts are cut. */
import { join } from "node:path";
import { expect, test } from "vitest";
import { readModelConfig } from "../../../../src/engine/onnx/model/config.ts";
import { onHost } from "../../../../src/engine/onnx/sample/host-place.ts";
import { Sampler } from "../../../../src/engine/onnx/sample/sampler.ts";
import type { SamplerPlace } from "../../../../src/engine/onnx/sample/place.ts";
import type { HostTrained } from "../../../../src/engine/onnx/sample/host-weights.ts";
import { planBatches, batchLimits } from "../../../../src/engine/onnx/train/batch.ts";
import { Trainer } from "../../../../src/engine/onnx/train/trainer.ts";
import { forEachGroup } from "../../../../src/engine/onnx/train/inputs.ts";
import { attentionRanges, packedMasks, promptMasks } from "../../../../src/engine/onnx/train/masks.ts";
import type { Row, SampledToken } from "../../../../src/engine/port.ts";
import { params } from "../sample/harness.ts";

const base = { id: "mistral", directory: join(import.meta.dirname, "../../../oracle/families/mistral/model") };
const signal = new AbortController().signal;
const WINDOW = 16;
const tokensOf = (length: number, seed: number) => Int32Array.from({ length }, (_, t) => (seed * 7 + t * 11 + ((seed * t) % 5)) % 32);
const rowOf = (tokens: Int32Array): Row => ({ tokens, weights: Float32Array.from(tokens, (_, t) => (t === 0 ? 0 : 1)) });

/** Rows with a prompt of 12 or 20 tokens, and continuations that end before, at and after the window's border. */
const rows = [12, 20].flatMap((shared) =>
  [3, 4, 5, 6, 20].map((own, i) => rowOf(Int32Array.from([...tokensOf(shared, 1), ...tokensOf(own, i + 2)]))),
);

test("rows in prefix groups have the log-probabilities of single rows", async () => {
  const trainer = new Trainer({ threads: 1 });
  const id = await trainer.createModel(base, { seed: 0 });
  const together = await trainer.forward(id, rows, signal);
  expect(planBatches(rows, batchLimits(await readModelConfig(base.directory))).some(({ prompts }) => prompts !== null)).toBe(true);
  for (const [i, row] of rows.entries()) {
    const [alone] = await trainer.forward(id, [row], signal);
    alone!.forEach((logprob, t) => expect(together[i]![t]).toBeCloseTo(logprob, 5));
  }
});

test("masks hide exactly the tokens before the window, as given and from ranges", async () => {
  const batches = planBatches(rows, batchLimits(await readModelConfig(base.directory)));
  for (const batch of batches) {
    const real = [new Set<string>(), new Set<string>()];
    forEachGroup(batch, ({ shared, continuations }, prompt, firstPackedRow) => {
      for (let t = 0; t < shared; t++) real[1]!.add(`${prompt} ${t}`);
      for (const { packedRow, start, length } of continuations)
        for (let t = start; t < start + length; t++) real[0]!.add(`${firstPackedRow + packedRow} ${t}`);
    });
    const given = [packedMasks(batch, 2, WINDOW), ...(batch.prompts ? [promptMasks(batch.prompts, 2, WINDOW)] : [])];
    const ranges = [attentionRanges(batch, false, 2, WINDOW), ...(batch.prompts ? [attentionRanges(batch, true, 2, WINDOW)] : [])];
    given.forEach((masks, isPrompt) =>
      masks.forEach(({ data, shape: [count, , lines, keys] }, block) => {
        const { first, last, lastPrompt, firstPrompt } = ranges[isPrompt]![block]!;
        for (let line = 0; line < count * lines; line++) {
          const row = Math.floor(line / lines);
          if (!real[isPrompt]!.has(`${row} ${block * (lines / 2) + (line % (lines / 2))}`)) continue;
          let seen = 0;
          for (let key = 0; key < keys; key++) {
            const isPromptKey = key <= lastPrompt[row]!;
            const isSeen = isPromptKey ? key >= firstPrompt[line]! : key >= first[line]! && key <= last[line]!;
            expect(data[line * keys + key] === 0, `line ${line}, key ${key}`).toBe(isSeen);
            seen += Number(isSeen);
          }
          expect(seen).toBeGreaterThan(0);
          expect(seen).toBeLessThanOrEqual(WINDOW);
        }
      }),
    );
  }
});

test("a token outside of the receptive field of all layers changes no bit", async () => {
  const trainer = new Trainer({ threads: 1 });
  const id = await trainer.createModel(base, { seed: 0 });
  const { layers } = await readModelConfig(base.directory);
  // The input at position p reaches the outputs up to position p + layers · (window − 1); an output predicts the next token.
  const last = layers * (WINDOW - 1);
  const changed = tokensOf(44, 3);
  changed[0] = (changed[0]! + 1) % 32;
  const [before] = await trainer.forward(id, [rowOf(tokensOf(44, 3))], signal);
  const [after] = await trainer.forward(id, [rowOf(changed)], signal);
  expect(after!.slice(last + 2)).toEqual(before!.slice(last + 2));
  expect(after![last + 1]).not.toBe(before![last + 1]);
});

test("prompts of any length around the window, whole and in pieces, and every decoded token have the trainer's log-probabilities", async () => {
  const trainer = new Trainer({ threads: 1 });
  const id = await trainer.createModel(base, { seed: 0 });
  for (const options of [{}, { maxPrefillTokens: 16, prefixCacheBytes: 0 }]) {
    const prompts = [WINDOW - 1, WINDOW, WINDOW + 1, 31, 33].map((length) => tokensOf(length, 5));
    const sampled = await sampleAll(onHost(1), prompts, options);
    const rows = prompts.map((prompt, i) => rowOf(Int32Array.from([...prompt, ...sampled[i]!.map(({ id: token }) => token)])));
    const logprobs = await trainer.forward(id, rows, signal);
    sampled.forEach((tokens, i) =>
      tokens.forEach(({ logprob }, t) => expect(logprobs[i]![prompts[i]!.length + t]).toBeCloseTo(logprob, 5)),
    );
  }
});

/** Samples 12 tokens after each prompt, all together. */
function sampleAll(place: SamplerPlace<HostTrained>, prompts: readonly Int32Array[], options: object): Promise<SampledToken[][]> {
  return new Promise((resolve, reject) => {
    const tokens: SampledToken[][] = prompts.map(() => []);
    let running = prompts.length;
    const sampler = new Sampler<HostTrained>(
      { threads: 1, ...options },
      (events) =>
        events.forEach(({ request, token }) => {
          tokens[request]!.push(token);
          if (token.finish && --running === 0) resolve(tokens);
        }),
      (_, error) => reject(error as Error),
      place,
    );
    void sampler.loadPolicy("p", base, undefined).then(() => prompts.forEach((prompt, i) => sampler.add(i, "p", prompt, params(i))));
  });
}
