/** Times training steps of the engine's trainer: `train-engine.ts <file with TrainInput as JSON>`. */
import { Trainer } from "../../src/engine/onnx/train/trainer.ts";
import { median, variantInput } from "./support.ts";
import type { TrainInput, TrainResult } from "./train.bench.ts";
import { startHelper } from "../support/start-helper.ts";

/** Max steps before the measured ones; fewer if they take longer than the measurement. */
const WARM_UP_STEPS = 3;

const input = variantInput<TrainInput>();
const trainer = new Trainer({ threads: input.threads, startHelper });
const id = await trainer.createModel(
  { id: "bench", directory: input.directory },
  {
    seed: 1,
    fresh: true,
    lora: input.rank === null ? undefined : { rank: input.rank },
  },
);
const weight = 1 / input.rows.reduce((sum, { trained }) => sum + trained, 0);
const rows = input.rows.map(({ tokens, trained }) => ({
  tokens: Int32Array.from(tokens),
  weights: new Float32Array(tokens.length).fill(weight, tokens.length - trained),
}));
const { signal } = new AbortController();
let loss = NaN;
async function step(): Promise<void> {
  const { metrics } = await trainer.forwardBackward(id, rows, { kind: "cross-entropy" }, signal);
  await trainer.optimStep(id, { learningRate: 1e-3, beta1: 0.9, beta2: 0.99, weightDecay: 0.01, maxGradNorm: 1 });
  loss = metrics.loss;
}
const warmUpEndMs = performance.now() + input.seconds * 1000;
for (let i = 0; i < WARM_UP_STEPS && (i === 0 || performance.now() < warmUpEndMs); i++) await step();
const times: number[] = [];
const cpuBefore = process.cpuUsage();
for (const endMs = performance.now() + input.seconds * 1000; performance.now() < endMs;) {
  const startMs = performance.now();
  await step();
  times.push(performance.now() - startMs);
}
const cpu = process.cpuUsage(cpuBefore);
const result: TrainResult = { msPerStep: median(times), cpuMsPerStep: (cpu.user + cpu.system) / 1000 / times.length, loss };
console.log(JSON.stringify(result));
