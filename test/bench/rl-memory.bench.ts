/**
 * Peak memory of one process with service, sampler and trainer over RL steps of a pretrained model with an adapter, phase by phase.
 *
 *   npm run bench -- rl-memory --base <directory> [--steps 2] [--groups 16] [--size 8] [--tokens 64] [--rank 16] [--threads 2]
 *     [--weight-precision float32|int8|int4] [--rollout-precision float32|int8]
 *
 * Rewards grow with the length of the answer, so that every group has something to learn, and the prompts ask for long answers. Below the
 * phases stands where the memory goes: the parts of known size, and the rest, which is the compiled graphs with the memory of their largest
 * run, the heaps of the threads and the code. `--base` is a directory in Hugging Face layout. Linux only.
 */
import { parseArgs } from "node:util";
import type { RolloutPrecision, WeightPrecision } from "../../src/engine/engine-info.ts";
import { readModelConfig } from "../../src/engine/onnx/model/config.ts";
import { adapterLayout, baseLayout } from "../../src/engine/onnx/model/parameters.ts";
import { hasPeaks } from "./resident-memory.ts";
import { type RlStepInput, type RlStepResult, SHARED } from "./rl-step.bench.ts";
import { measureInTurn, OptionError, printTable, whole } from "./support.ts";

/** Bytes of a weight by precision; matrices in blocks have float32 scales. */
const BYTES_PER_WEIGHT: Readonly<Record<WeightPrecision, number>> = { float32: 4, float16: 2, int8: 1.125, int4: 0.625 };

/** Tokens that the chat template and the question take at most. */
const PROMPT_TOKENS = 64;

export async function run(args: string[]): Promise<void> {
  const { values } = parseArgs({
    args,
    options: {
      base: { type: "string" },
      steps: { type: "string", default: "2" },
      groups: { type: "string", default: "16" },
      size: { type: "string", default: "8" },
      tokens: { type: "string", default: "64" },
      rank: { type: "string", default: "16" },
      threads: { type: "string", default: "2" },
      "weight-precision": { type: "string", default: "float32" },
      "rollout-precision": { type: "string", default: "float32" },
    },
  });
  const { base } = values;
  if (base === undefined) throw new OptionError("Expected --base with the directory of a model in Hugging Face layout, got none");
  if (!hasPeaks) throw new OptionError(`Expected Linux, which reports the peak of a phase, got ${process.platform}`);
  const [steps, groups] = [whole("steps", values.steps), whole("groups", values.groups)];
  const input: RlStepInput = {
    directory: base,
    groups,
    size: whole("size", values.size, 2),
    tokens: whole("tokens", values.tokens),
    steps,
    rank: whole("rank", values.rank),
    threads: whole("threads", values.threads),
    precisions: {
      weightPrecision: values["weight-precision"] as WeightPrecision,
      rolloutPrecision: values["rollout-precision"] as RolloutPrecision,
    },
    seed: 1,
    ...SHARED,
    reward: "length",
    problems: Array.from({ length: steps * groups }, (_, index) => ({
      prompt: `Tell me a long story about the number ${index + 2}.`,
      answer: "",
    })),
  };
  const program = new URL("rl-step-library.ts", import.meta.url);
  const [[result]] = (await measureInTurn<RlStepResult>([{ label: "whetstone", program, input }], 1)) as [[RlStepResult]];
  console.log(
    `${steps} RL steps of ${groups} × ${input.size} answers of at most ${input.tokens} tokens, adapter of rank ${input.rank}, weights in ${values["weight-precision"]}, rollouts in ${values["rollout-precision"]}\n`,
  );
  printTable(
    ["phase", "s", "CPU s", "peak, MB", "at the end, MB"],
    result.phases.map(({ name, seconds, cpuSeconds, peakMb, residentMb }) => [
      name,
      seconds.toFixed(1),
      cpuSeconds.toFixed(1),
      peakMb.toFixed(0),
      residentMb.toFixed(0),
    ]),
  );
  console.log(`Sampled tokens per step: ${result.steps.map(({ tokens }) => tokens).join(", ")}\n`);
  const parts = await knownParts(input);
  const known = parts.reduce((sum, [, mb]) => sum + mb, 0);
  printTable(
    ["part", "MB"],
    [
      ...parts.map(([name, mb]) => [name, mb.toFixed(0)]),
      ["sum of these, which are not all in memory at the same time", known.toFixed(0)],
      ["peak of the process", result.peakMb.toFixed(0)],
    ],
  );
}

/** Returns the parts with sizes that follow from the shapes, in 10⁶ bytes. */
async function knownParts({ directory, groups, size, tokens, rank, precisions }: RlStepInput): Promise<(readonly [string, number])[]> {
  const config = await readModelConfig(directory);
  const mb = (floats: number) => (4 * floats) / 1e6;
  const weights = (mb(baseLayout(config).length) * BYTES_PER_WEIGHT[precisions?.weightPrecision ?? "float32"]) / 4;
  const adapter = mb(adapterLayout(config, rank).length);
  const perToken = 2 * config.layers * config.kvHeads * config.headSize;
  const rows = groups * size;
  return [
    ["base weights of the sampler", weights],
    ["base weights of the trainer", weights],
    ["adapter of the trainer: weights, gradients, two moments", 4 * adapter],
    ["adapter of the sampler, and its stack", 3 * adapter],
    [`keys and values of ${rows} rows of ${PROMPT_TOKENS + tokens} tokens`, mb(perToken * rows * (PROMPT_TOKENS + tokens))],
    [`distributions of ${rows} rows: logits, log-probabilities, probabilities`, 3 * mb(rows * config.vocabularySize)],
  ];
}
