/**
 * Memory and speed of a GPU with weights in float32 and in float16, each in a separate process:
 *
 *   npm run bench -- precision [--params 27m] [--type F32|BF16] [--lora 16] [--rows 4] [--tokens 256] [--batch 8] [--prompt 64]
 *     [--sampled 16] [--steps 2] [--rounds 1]
 *
 * Each process reads random weights of the given type, samples a batch from the base model or trains an adapter, and prints its peak of
 * resident memory. With a software driver such as lavapipe, the memory of the device is part of it. Choose a driver with `VK_DRIVER_FILES`.
 */
import { parseArgs } from "node:util";
import type { DevicePrecision } from "../../src/engine/engine-info.ts";
import {
  hasWeights,
  measureInTurn,
  median,
  OptionError,
  printTable,
  requireContext,
  shapeName,
  short,
  whole,
  withShape,
} from "./support.ts";
import { writeRandomWeights, type WrittenType } from "./random-weights.ts";

/** Input of `precision-engine.ts`. */
export interface PrecisionInput {
  readonly directory: string;
  readonly precision: DevicePrecision;
  /** Rank of the trained adapter; null samples from the base model. */
  readonly rank: number | null;
  readonly rows: number;
  readonly tokens: number;
  readonly batch: number;
  readonly prompt: number;
  readonly sampled: number;
  readonly steps: number;
}

/** Output of `precision-engine.ts`; memory in 10⁶ bytes. */
export interface PrecisionResult {
  /** Tensors in the memory of the device after loading. */
  readonly tensorsMb: number;
  /** Resident memory before the weights are loaded and after, and its peak. */
  readonly startMb: number;
  readonly loadedMb: number;
  readonly peakMb: number;
  /** Median time of a step, in milliseconds. */
  readonly stepMs: number;
  /** Log-probabilities of given tokens by the trainer. */
  readonly logprobs: readonly number[];
  /** Largest difference between sampler and trainer of the log-probabilities of sampled tokens. */
  readonly difference: number;
}

export async function run(args: string[]): Promise<void> {
  const { values } = parseArgs({
    args,
    options: {
      params: { type: "string", default: "27m" },
      type: { type: "string", default: "F32" },
      lora: { type: "string", default: "16" },
      rows: { type: "string", default: "4" },
      tokens: { type: "string", default: "256" },
      batch: { type: "string", default: "8" },
      prompt: { type: "string", default: "64" },
      sampled: { type: "string", default: "16" },
      steps: { type: "string", default: "2" },
      rounds: { type: "string", default: "1" },
    },
  });
  if (values.type !== "F32" && values.type !== "BF16") throw new OptionError(`Expected --type to be F32 or BF16, got "${values.type}"`);
  const type: WrittenType = values.type;
  const [rows, tokens, batch] = [whole("rows", values.rows), whole("tokens", values.tokens), whole("batch", values.batch)];
  const [prompt, sampled, steps] = [whole("prompt", values.prompt), whole("sampled", values.sampled), whole("steps", values.steps)];
  const sizes = { rows, tokens, batch, prompt, sampled, steps };
  const ranks = [null, whole("lora", values.lora)];
  const [params, rounds] = [shapeName(values.params), whole("rounds", values.rounds)];
  await requireContext(params, Math.max(tokens, prompt + sampled));
  const precisions = ["float32", "float16"] as const;
  await withShape(params, async (directory) => {
    if (!hasWeights(params)) await writeRandomWeights(directory, type);
    const program = new URL("precision-engine.ts", import.meta.url);
    const inputs = ranks.flatMap((rank) => precisions.map((precision): PrecisionInput => ({ directory, precision, rank, ...sizes })));
    const results = await measureInTurn<PrecisionResult>(
      inputs.map((input) => ({ label: "whetstone", program, input })),
      rounds,
    );
    const work = (rank: number | null) =>
      rank === null
        ? `sampling, ${batch} requests, ${prompt} + ${sampled} tokens`
        : `training an adapter of rank ${rank}, ${rows} rows of ${tokens}`;
    const all = (at: number, name: "tensorsMb" | "startMb" | "loadedMb" | "peakMb" | "stepMs") =>
      median(results[at]!.map((result) => result[name]));
    printTable(
      ["work", "weights", "tensors, MB", "before loading, MB", "after loading, MB", "peak, MB", "tokens/s"],
      inputs.map(({ rank, precision }, at) => {
        const megabytes = (["tensorsMb", "startMb", "loadedMb", "peakMb"] as const).map((name) => all(at, name).toFixed(0));
        const perStep = rank === null ? batch * sampled : rows * tokens;
        return [work(rank), precision, ...megabytes, short((perStep * 1000) / all(at, "stepMs"))];
      }),
    );
    const logprobs = (at: number) => results[at]![0]!.logprobs;
    printTable(
      ["work", "sampler − trainer, float32", "sampler − trainer, float16", "trainer, float16 − float32"],
      ranks.map((rank, i) => {
        const [single, half] = [2 * i, 2 * i + 1];
        const between = Math.max(...logprobs(half).map((value, k) => Math.abs(value - logprobs(single)[k]!)));
        const differences = [results[single]![0]!.difference, results[half]![0]!.difference, between];
        return [work(rank), ...differences.map((value) => value.toExponential(1))];
      }),
    );
  });
}
