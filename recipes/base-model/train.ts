/**
 * Training of the base model from scratch, with the package's own engine on this recipe's exercises:
 *
 *   npx tsx --conditions=whetstone/source recipes/base-model/train.ts [--seed N] [--steps N] [--max-steps N] [--run-dir DIR]
 *
 * The run directory receives `config.json`, `metrics.jsonl` (the curve), `scores.json` and, in `model/`, the complete model in Hugging Face
 * layout. `models/` is not modified: copy `model/model.safetensors` there to ship it.
 */
import { appendFile, copyFile, mkdir, writeFile } from "node:fs/promises";
import { join, resolve } from "node:path";
import { parseArgs } from "node:util";
import { fileURLToPath } from "node:url";

import { createOnnxEngine } from "../../src/engine/index.ts";
import type { Engine, PolicyVersion, Row } from "../../src/engine/port.ts";
import { loadTokenizer, type ChatTokenizer } from "../../src/text/tokenizer/index.ts";
import { extractAnswer, goldAnswer, MAX_COMPLETION_TOKENS, reverseMessages, reverseScenario } from "../reverse-text/task.ts";
import { drawExercise, type Exercise } from "./data.ts";
import { writeTokenizer } from "./tokenizer.ts";

/** Settings that determine the weights. */
export interface BaseModelConfig {
  readonly seed: number;
  /** Length of the learning-rate schedule in optimizer steps. */
  readonly steps: number;
  /** Optimizer steps after which training stops. */
  readonly maxSteps: number;
  /** Exercises per optimizer step. */
  readonly batchSize: number;
  readonly peakLearningRate: number;
  readonly warmupSteps: number;
  /** Fraction of the steps after which the learning rate decays along a cosine to a twentieth. */
  readonly decayFrom: number;
  readonly weightDecay: number;
  readonly maxGradNorm: number;
  /** Number of exercises, and of problems, in the final evaluation. */
  readonly heldOut: number;
}

export const defaults: BaseModelConfig = {
  seed: 1,
  steps: 5000,
  maxSteps: 5000,
  batchSize: 32,
  peakLearningRate: 1e-3,
  warmupSteps: 50,
  decayFrom: 0.6,
  weightDecay: 0.01,
  maxGradNorm: 1,
  heldOut: 512,
};

const USAGE = "Usage: train.ts [--seed N] [--steps N] [--max-steps N] [--run-dir DIR]";
/** Offsets of the held-out exercises: another seed, and indices at which all skills are in use. */
const HELD_OUT = { seedOffset: 1_000_000, index: 1_000_000 } as const;
const MODEL = "whetstone-tiny";
const SOURCE = fileURLToPath(new URL(`../../models/${MODEL}/`, import.meta.url));
const LONGEST_ANSWER_TOKENS = 96;

/** Greedy evaluation of the trained model. */
export interface BaseModelScores {
  /** Fraction of held-out exercises with an exactly correct last turn, by kind. */
  readonly exercises: Readonly<Record<string, number>>;
  readonly allExercises: number;
  /** Control: fraction of exact answers on the reverse-text recipe, which is not part of the training data. */
  readonly reverseText: number;
}

/** Computes the learning rate of a step (counted from 0): linear warm-up, plateau, cosine decay. */
export function learningRate(step: number, config: BaseModelConfig): number {
  const { steps, peakLearningRate, warmupSteps, decayFrom } = config;
  const rise = Math.min(1, (step + 1) / warmupSteps);
  const progress = (step / steps - decayFrom) / (1 - decayFrom);
  return peakLearningRate * rise * (progress <= 0 ? 1 : 0.05 + 0.475 * (1 + Math.cos(Math.PI * Math.min(1, progress))));
}

/** Trains and evaluates the model; all files are written under `runDir`. */
export async function trainBaseModel(
  config: BaseModelConfig,
  runDir: string,
  { signal }: { signal?: AbortSignal | undefined } = {},
): Promise<BaseModelScores> {
  const modelDir = join(runDir, "model");
  const stateDir = join(runDir, "state");
  await mkdir(runDir, { recursive: true });
  // Not recursive, so that a second run in the same directory fails here, before training.
  await mkdir(stateDir);
  writeTokenizer(modelDir);
  for (const name of ["config.json", "generation_config.json"]) await copyFile(join(SOURCE, name), join(modelDir, name));
  await writeFile(join(runDir, "config.json"), `${JSON.stringify(config, null, 2)}\n`);
  const tokenizer = await loadTokenizer(modelDir);
  const engine = await createOnnxEngine({ baseModels: { [MODEL]: modelDir }, trainerNiceness: 0 });
  try {
    const model = await engine.createModel({ base: MODEL, seed: config.seed, fresh: true }, { signal });
    const started = performance.now();
    const { weightDecay, maxGradNorm } = config;
    const batch = (step: number) =>
      meanWeighted(
        Array.from({ length: config.batchSize }, (_, i) => toRow(drawExercise(config.seed, step * config.batchSize + i), tokenizer)),
      );
    let tokens = 0;
    let next = batch(0);
    for (let step = 0; step < Math.min(config.steps, config.maxSteps); step++) {
      const rows = next;
      const gradients = engine.forwardBackward(model, rows, { kind: "cross-entropy" }, { signal });
      const update = engine.optimStep(model, { learningRate: learningRate(step, config), weightDecay, maxGradNorm }, { signal });
      // The engine computes in another thread; the next batch is prepared meanwhile.
      next = batch(step + 1);
      const [{ metrics }, { gradNorm }] = await Promise.all([gradients, update]);
      tokens += rows.reduce((sum, row) => sum + row.tokens.length, 0);
      const seconds = Math.round((performance.now() - started) / 100) / 10;
      const record = { step: step + 1, loss: metrics.loss, gradNorm, tokens, seconds };
      await appendFile(join(runDir, "metrics.jsonl"), `${JSON.stringify(record)}\n`);
      if ((step + 1) % 50 === 0)
        process.stderr.write(`${step + 1}/${config.steps}  loss ${metrics.loss.toFixed(3)}  ${tokens} tokens  ${seconds} s\n`);
    }
    await engine.saveState(model, stateDir, { signal });
    await copyFile(join(stateDir, "model.safetensors"), join(modelDir, "model.safetensors"));
    const scores = await measure(engine, await engine.publish(model, { signal }), tokenizer, config);
    await writeFile(join(runDir, "scores.json"), `${JSON.stringify(scores, null, 2)}\n`);
    return scores;
  } finally {
    await engine.close();
  }
}

/**
 * Converts an exercise to a training row: weight 1 on the assistant's text and its end token.
 *
 * Produces the same tokens and weights as `renderTraining`, which supports any template by rendering once per turn. This template marks
 * turns with control tokens, so that one rendering suffices.
 */
export function toRow({ messages, tools }: Exercise, tokenizer: ChatTokenizer): Row {
  const tokens = tokenizer.encode(tokenizer.renderChat(messages, { tools, addGenerationPrompt: false }));
  const [begin, end] = ["<|assistant|>", "<|end|>"].map((text) => tokenizer.encode(text)[0]!);
  const weights = new Float32Array(tokens.length);
  let isSpeaking = false;
  tokens.forEach((token, index) => {
    weights[index] = isSpeaking ? 1 : 0;
    if (token === begin) isSpeaking = true;
    if (token === end) isSpeaking = false;
  });
  return { tokens, weights };
}

/**
 * Divides the weights by the number of trained tokens in the batch. The engine sums the loss, and the learning rate was chosen for the
 * mean.
 */
function meanWeighted(rows: readonly Row[]): Row[] {
  const count = rows.reduce((sum, row) => sum + row.weights.reduce((a, b) => a + b, 0), 0);
  return rows.map((row) => ({ ...row, weights: row.weights.map((weight) => weight / count) }));
}

async function measure(engine: Engine, policy: PolicyVersion, tokenizer: ChatTokenizer, config: BaseModelConfig): Promise<BaseModelScores> {
  const write = async (prompt: Int32Array, maxTokens: number): Promise<string> => {
    const ids: number[] = [];
    const greedy = { temperature: 0, topP: 1, topK: 0, seed: 0n, topLogprobs: 0, stopTokenIds: tokenizer.eosTokenIds, maxTokens };
    for await (const { id } of engine.sample(policy, prompt, greedy)) ids.push(id);
    return tokenizer.decode(ids, { skipSpecialTokens: true });
  };
  const indices = Array.from({ length: config.heldOut }, (_, index) => index);
  const exercises = await Promise.all(
    indices.map(async (index) => {
      const exercise = drawExercise(config.seed + HELD_OUT.seedOffset, HELD_OUT.index + index);
      const { ids, mask } = tokenizer.renderTraining(exercise.messages, { tools: exercise.tools });
      const start = mask.lastIndexOf(0) + 1;
      const expected = tokenizer.decode(ids.subarray(start), { skipSpecialTokens: true });
      return { kind: exercise.kind, isRight: (await write(ids.slice(0, start), LONGEST_ANSWER_TOKENS)) === expected };
    }),
  );
  const reversed = await Promise.all(
    indices.map(async (index) => {
      const scenario = reverseScenario("held-out", config.seed, index);
      const text = await write(tokenizer.encode(tokenizer.renderChat(reverseMessages(scenario))), MAX_COMPLETION_TOKENS);
      return extractAnswer(text) === extractAnswer(goldAnswer(scenario));
    }),
  );
  const share = (flags: readonly boolean[]): number => flags.filter(Boolean).length / flags.length;
  const kinds = [...new Set(exercises.map(({ kind }) => kind))].toSorted();
  return {
    exercises: Object.fromEntries(
      kinds.map((kind) => [kind, share(exercises.filter((one) => one.kind === kind).map(({ isRight }) => isRight))]),
    ),
    allExercises: share(exercises.map(({ isRight }) => isRight)),
    reverseText: share(reversed),
  };
}

async function main(): Promise<void> {
  const { values } = parseArgs({
    options: {
      seed: { type: "string", default: String(defaults.seed) },
      steps: { type: "string", default: String(defaults.steps) },
      "max-steps": { type: "string" },
      "run-dir": { type: "string", default: join("runs", "base-model") },
      help: { type: "boolean", short: "h" },
    },
  });
  if (values.help === true) {
    console.log(USAGE);
    return;
  }
  const whole = (name: string, value: string, least: number): number => {
    const number = Number(value);
    if (!Number.isInteger(number) || number < least)
      throw new RangeError(`Expected --${name} to be a whole number from ${least}, got "${value}"`);
    return number;
  };
  const steps = whole("steps", values.steps, 1);
  const maxSteps = whole("max-steps", values["max-steps"] ?? String(steps), 1);
  const controller = new AbortController();
  process.once("SIGINT", () => controller.abort(new Error("stopped by the user")));
  const config = { ...defaults, seed: whole("seed", values.seed, 0), steps, maxSteps };
  console.log(JSON.stringify(await trainBaseModel(config, resolve(values["run-dir"]), { signal: controller.signal })));
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  main().catch((error: unknown) => {
    const isUsage = error instanceof TypeError && "code" in error && String(error.code).startsWith("ERR_PARSE_ARGS");
    console.error(error instanceof Error ? error.message : error);
    if (isUsage) console.error(USAGE);
    process.exitCode = isUsage ? 2 : 1;
  });
}
