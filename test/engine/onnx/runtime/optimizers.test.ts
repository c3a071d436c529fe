/** The optimizers that the engine turns off change none of its graphs. */
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { InferenceSession } from "onnxruntime-node";
import { expect, onTestFinished, test, vi } from "vitest";
import { readModelConfig } from "../../../../src/engine/onnx/model/config.ts";
import { INEFFECTIVE } from "../../../../src/engine/onnx/runtime/device.ts";
import { loadRuntime, Program } from "../../../../src/engine/onnx/runtime/program.ts";
import { onHost } from "../../../../src/engine/onnx/sample/host-place.ts";
import { Trainer } from "../../../../src/engine/onnx/train/trainer.ts";
import { ROOT } from "../../../project/files.ts";
import { Harness, params } from "../sample/harness.ts";

/** Models with every kind of norm, activation, positions, scales and window, and number formats of their weights. */
const CASES = [
  ...(["qwen3", "olmo2", "gemma3", "granite4-nope", "phi3-longrope"] as const).map((family) => [family, "float32"] as const),
  ...(["float32", "int8", "int4"] as const).map((precision) => ["qwen2", precision] as const),
];

const tokensOf = (seed: number, length: number) => Int32Array.from({ length }, (_, t) => 1 + ((seed * 7 + t * 5) % 30));

/** Returns the graph as the runtime optimizes it. */
async function optimized(graph: Uint8Array, options: InferenceSession.SessionOptions, file: string): Promise<Buffer> {
  const { InferenceSession } = await loadRuntime();
  await (await InferenceSession.create(graph, { ...options, optimizedModelFilePath: file })).release();
  return readFile(file);
}

test.each(CASES)("%s in %s: training and sampling have the same optimized graphs with all optimizers", async (family, weightPrecision) => {
  const directory = await mkdtemp(join(tmpdir(), "whetstone-optimizers-"));
  onTestFinished(() => rm(directory, { recursive: true, force: true }));
  const { InferenceSession } = await loadRuntime();
  const create = InferenceSession.create.bind(InferenceSession) as (
    graph: Uint8Array,
    options: InferenceSession.SessionOptions,
  ) => Promise<InferenceSession>;
  const compared: boolean[] = [];
  const compiled: string[] = [];
  const { compile } = Program;
  const compiling = vi.spyOn(Program, "compile").mockImplementation(async (graph, name, options) => {
    compiled.push(name);
    const creating = vi.spyOn(InferenceSession, "create").mockImplementation((async (
      bytes: Uint8Array,
      used: InferenceSession.SessionOptions,
    ) => {
      creating.mockRestore();
      expect(used.extra).toMatchObject({ optimization: { disable_specified_optimizers: INEFFECTIVE.join(";") } });
      const all = { ...used, extra: { ...used.extra, optimization: {} } };
      const file = join(directory, String(compared.length));
      compared.push((await optimized(bytes, used, file)).equals(await optimized(bytes, all, file)));
      return create(bytes, used);
    }) as typeof InferenceSession.create);
    return compile.call(Program, graph, name, options).finally(() => creating.mockRestore());
  });
  onTestFinished(() => compiling.mockRestore());
  const base = { id: "base", directory: join(ROOT, "test/oracle/families", family, "model") };
  const { contextLength } = await readModelConfig(base.directory);
  const trainer = new Trainer({ threads: 1, weightPrecision });
  const rows = [20, Math.min(150, contextLength - 20)].map((length) => ({
    tokens: tokensOf(length, length),
    weights: Float32Array.from({ length }, (_, t) => Number(t > 0)),
  }));
  const kinds = [{ kind: "cross-entropy" }, { kind: "cispo", epsilon: 0.2, epsilonHigh: 0.2 }] as const;
  const rl = rows.map((row) => ({
    ...row,
    logprobs: new Float32Array(row.tokens.length).fill(-2),
    advantages: new Float32Array(row.tokens.length).fill(1),
  }));
  for (const lora of weightPrecision === "float32" ? [undefined, { rank: 2 }] : [{ rank: 2 }]) {
    const id = await trainer.createModel(base, { seed: 1, ...(lora === undefined ? {} : { lora }) });
    for (const kind of kinds) await trainer.forwardBackward(id, rl, kind, new AbortController().signal);
    const { sampler, run } = await startSampler(weightPrecision);
    await sampler.addPolicy("p", base, lora === undefined ? null : trainer.weights(id));
    await Promise.all([5, 21, 40].map((length) => run(tokensOf(length, length))));
    await trainer.unload(id);
  }
  expect(new Set(compiled)).toEqual(
    new Set(["train-cross-entropy", "train-cispo", ...(weightPrecision === "float32" ? ["prompt", "decode"] : ["prepared"])]),
  );
  expect(compared.length).toBe(compiled.length);
  expect(compared).not.toContain(false);
});

async function startSampler(weights: (typeof CASES)[number][1]) {
  const harness = new Harness({}, onHost(1, { weights }));
  return { sampler: harness.sampler, run: (prompt: Int32Array) => harness.run(prompt, params(1, { maxTokens: 3 })) };
}
