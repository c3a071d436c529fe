/** Times one task on a model of random weights and its memory: `larger-engine.ts <file with LargerInput as JSON>`. */
import { createOnnxEngine } from "../../src/engine/index.ts";
import { Trainer } from "../../src/engine/onnx/train/trainer.ts";
import type { LargerInput, LargerResult } from "./larger.bench.ts";
import { median, variantInput } from "./support.ts";
import { startHelper } from "../support/start-helper.ts";

const PROMPT = 32;
const CONTINUATION = 64;
const LORA = { rank: 16 };

const input = variantInput<LargerInput>();
const { signal } = new AbortController();
const tokenAt = (row: number, t: number) => (row * 31 + t * 17 + ((row * t) % 7)) % 500;

/** Timed operation, and the number of tokens in one run. */
interface Work {
  readonly tokens: number;
  run(): Promise<void>;
  close(): Promise<void>;
}

async function training(): Promise<Work> {
  const trainer = new Trainer({ threads: input.threads, startHelper });
  const lora = input.task === "adapter" ? LORA : undefined;
  const id = await trainer.createModel({ id: "bench", directory: input.directory }, { seed: 1, fresh: true, lora });
  const weight = 1 / (input.rows * (input.tokens - 1));
  const rows = Array.from({ length: input.rows }, (_, row) => ({
    tokens: Int32Array.from({ length: input.tokens }, (__, t) => tokenAt(row, t)),
    weights: new Float32Array(input.tokens).fill(weight, 1),
  }));
  const adam = { learningRate: 1e-3, beta1: 0.9, beta2: 0.99, weightDecay: 0.01, maxGradNorm: 1 };
  return {
    tokens: input.rows * input.tokens,
    async run() {
      if (input.task === "forward") {
        await trainer.forward(id, rows, signal);
        return;
      }
      const { metrics } = await trainer.forwardBackward(id, rows, { kind: "cross-entropy" }, signal);
      if (!Number.isFinite(metrics.loss)) throw new Error("Expected a finite loss");
      await trainer.optimStep(id, adam);
    },
    close: async () => {},
  };
}

async function decoding(): Promise<Work> {
  const engine = await createOnnxEngine({ baseModels: { bench: input.directory }, samplerThreads: 1 });
  const model = await engine.createModel({ base: "bench", seed: 1, fresh: true });
  const policy = await engine.publish(model);
  await engine.unload(model);
  let seed = 0n;
  const one = async (row: number) => {
    const prompt = Int32Array.from({ length: PROMPT }, (_, t) => tokenAt(row, t));
    const params = { maxTokens: CONTINUATION, temperature: 1, topP: 1, topK: 0, seed: seed++, stopTokenIds: [], topLogprobs: 0 };
    for await (const token of engine.sample(policy, prompt, params))
      if (!Number.isFinite(token.logprob)) throw new Error("Expected a finite log-probability");
  };
  return {
    tokens: input.rows * CONTINUATION,
    run: async () => void (await Promise.all(Array.from({ length: input.rows }, (_, row) => one(row)))),
    close: () => engine.close(),
  };
}

const work = await (input.task === "decode" ? decoding() : training());
const loadedMb = process.memoryUsage().rss / 1e6;
await work.run();
const times: number[] = [];
for (const endMs = performance.now() + input.seconds * 1000; times.length < 3 || performance.now() < endMs;) {
  const startMs = performance.now();
  await work.run();
  times.push(performance.now() - startMs);
}
// The kernel's high-water mark, in kibibytes.
const peakMb = (process.resourceUsage().maxRSS * 1024) / 1e6;
await work.close();
console.log(JSON.stringify({ ms: median(times), tokens: work.tokens, loadedMb, peakMb } satisfies LargerResult));
