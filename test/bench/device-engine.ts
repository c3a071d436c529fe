/** Measures one task on one device through the engine's port: `device-engine.ts <file with DeviceInput as JSON>`. */
import { createOnnxEngine, type Engine, type LossMetrics, type ModelHandle, type PolicyVersion, type Row } from "../../src/engine/index.ts";
import { EngineError } from "../../src/base/errors.ts";
import type { DeviceInput, DeviceReport, GapResult, StepResult } from "./device.bench.ts";
import { median, quantile, variantInput } from "./support.ts";
import type { TrainRow } from "./train.bench.ts";

const input = variantInput<DeviceInput>();
const ADAM = { learningRate: 1e-3, beta1: 0.9, beta2: 0.99, weightDecay: 0.01, maxGradNorm: 1 };
/** Tokens of one answer of the stream. */
const STREAM_TOKENS = 128;
/** Gaps of the stream without training. */
const IDLE_GAPS = 32;

function rowsOf(rows: readonly TrainRow[]): Row[] {
  const weight = 1 / rows.reduce((sum, { trained }) => sum + trained, 0);
  return rows.map(({ tokens, trained }) => ({
    tokens: Int32Array.from(tokens),
    weights: new Float32Array(tokens.length).fill(weight, tokens.length - trained),
  }));
}

async function train(engine: Engine, model: ModelHandle, rows: readonly Row[]): Promise<LossMetrics> {
  const { metrics } = await engine.forwardBackward(model, rows, { kind: "cross-entropy" });
  await engine.optimStep(model, ADAM);
  if (!Number.isFinite(metrics.loss)) throw new Error(`Expected a finite loss, got ${metrics.loss}`);
  return metrics;
}

/** Times steps of each shape, after one step that compiles its graphs. */
async function training(engine: Engine, { shapes, rank, steps }: Extract<DeviceInput["task"], { kind: "training" }>) {
  const model = await engine.createModel({ base: "bench", seed: 1, fresh: true, lora: rank === null ? undefined : { rank } });
  const results: StepResult[] = [];
  for (const shape of shapes) {
    const rows = rowsOf(shape.rows);
    let { device = null } = await train(engine, model, rows);
    const times: number[] = [];
    for (let step = 0; step < steps; step++) {
      const startMs = performance.now();
      ({ device = null } = await train(engine, model, rows));
      times.push(performance.now() - startMs);
    }
    results.push({ msPerStep: median(times), device });
  }
  return results;
}

async function publishFresh(engine: Engine): Promise<PolicyVersion> {
  return engine.publish(await engine.createModel({ base: "bench", seed: 1, fresh: true }));
}

let nextSeed = 0n;
function sample(engine: Engine, policy: PolicyVersion, row: number, sizes: { readonly prompt: number; readonly tokens: number }) {
  const prompt = Int32Array.from({ length: sizes.prompt }, (_, t) => (row * 31 + t * 17 + ((row * t) % 7)) % 500);
  const seed = nextSeed++;
  return engine.sample(policy, prompt, {
    maxTokens: sizes.tokens,
    temperature: 1,
    topP: 1,
    topK: 0,
    seed,
    stopTokenIds: [],
    topLogprobs: 0,
  });
}

/** Times batches of requests, after one batch that compiles the graphs; ms per batch size. */
async function sampling(engine: Engine, task: Extract<DeviceInput["task"], { kind: "sampling" }>): Promise<number[]> {
  const policy = await publishFresh(engine);
  const one = async (row: number) => {
    let count = 0;
    for await (const { logprob } of sample(engine, policy, row, task)) if (Number.isFinite(logprob)) count++;
    if (count !== task.tokens) throw new Error(`Expected ${task.tokens} tokens with finite log-probabilities, got ${count}`);
  };
  const batch = (size: number) => Promise.all(Array.from({ length: size }, (_, row) => one(row)));
  const results: number[] = [];
  for (const size of task.batches) {
    await batch(size);
    const times: number[] = [];
    for (let step = 0; step < task.steps; step++) {
      const startMs = performance.now();
      await batch(size);
      times.push(performance.now() - startMs);
    }
    results.push(median(times));
  }
  return results;
}

/** Measures the gaps between the tokens of one stream, first alone, then while steps are trained. */
async function stream(engine: Engine, task: Extract<DeviceInput["task"], { kind: "stream" }>): Promise<GapResult> {
  const policy = await publishFresh(engine);
  const model = await engine.createModel({ base: "bench", seed: 1, fresh: true });
  const rows = rowsOf(task.shape.rows);
  const gapsWhile = async (isOpen: (count: number) => boolean) => {
    const gaps: number[] = [];
    while (isOpen(gaps.length)) {
      let lastMs: number | null = null;
      for await (const _token of sample(engine, policy, 0, { prompt: task.prompt, tokens: STREAM_TOKENS })) {
        const nowMs = performance.now();
        if (lastMs !== null) gaps.push(nowMs - lastMs);
        lastMs = nowMs;
        if (!isOpen(gaps.length)) break;
      }
    }
    return { median: median(gaps), p99: quantile(gaps, 0.99), max: quantile(gaps, 1) };
  };
  // Compiles the graphs.
  await train(engine, model, rows);
  await gapsWhile((count) => count < IDLE_GAPS);
  const idle = await gapsWhile((count) => count < IDLE_GAPS);
  let isTraining = true;
  let onGap = () => {};
  const isStreaming = new Promise<void>((resolve) => (onGap = resolve));
  const streaming = gapsWhile((count) => {
    if (count > 0) onGap();
    return isTraining;
  });
  // The wait for a first token is not a gap, so the stream has to run before a step begins.
  await Promise.race([isStreaming, streaming]);
  for (let step = 0; step < task.steps; step++) await train(engine, model, rows);
  isTraining = false;
  return { idle, training: await streaming };
}

async function report(): Promise<DeviceReport> {
  const engine = await createOnnxEngine({ baseModels: { bench: input.directory }, device: input.device }).catch((error: unknown) => {
    if (error instanceof EngineError) return error.message;
    throw error;
  });
  if (typeof engine === "string") return { missing: engine };
  try {
    const [device] = engine.devices!();
    switch (input.task.kind) {
      case "probe":
        return { device: device! };
      case "training":
        return { device: device!, training: await training(engine, input.task) };
      case "sampling":
        return { device: device!, sampling: await sampling(engine, input.task) };
      case "stream":
        return { device: device!, stream: await stream(engine, input.task) };
    }
  } finally {
    await engine.close();
  }
}

console.log(JSON.stringify(await report()));
