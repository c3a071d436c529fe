/**
 * RL steps of a pretrained model with an adapter: seconds, reward and memory of the library with the embedded service, compared with TRL's GRPO
 * trainer with PEFT on the same cores, one after the other.
 *
 *   npm run bench -- rl-step --base <directory> [--vs trl --python <python>] [--steps 3] [--groups 16] [--size 8] [--tokens 16]
 *     [--rank 16] [--threads 2] [--seed 1] [--reward exact] [--learning-rate 1e-4] [--weight-precision float32|int8|int4]
 *     [--rollout-precision float32|int8]
 *
 * Task: addition, "What is x + y? Answer with only the number." Rewards: `exact`, 1 for the exact number plus 0.2 for digits only, or
 * `digits`, the share of digits in the text, a dense reward that rises within ten steps at a learning rate of 3e-4.
 *
 * Both sides start from the directory in Hugging Face layout and see the same problems in the same order, `--groups` per step and `--size`
 * answers of at most `--tokens` tokens to each, sampled at temperature 1. Both train an adapter on every linear layer with alpha twice the
 * rank, at the same learning rate and a gradient norm of at most 1; TRL in float32, the library in the given number formats. A step of the library trains only groups with rewards that
 * differ; TRL computes the gradient of every answer. `--vs trl` needs a Python with torch, transformers, trl, peft, accelerate and datasets.
 * At 16 groups of 8 answers of 64 tokens, TRL needs more than 24 GB.
 */
import { parseArgs } from "node:util";
import type { OnnxEngineOptions } from "../../src/engine/index.ts";
import type { RolloutPrecision, WeightPrecision } from "../../src/engine/engine-info.ts";
import type { PhaseUse } from "./resident-memory.ts";
import { measureInTurn, median, OptionError, printTable, type Variant, whole } from "./support.ts";

/** Problem of a step. */
export interface RlProblem {
  readonly prompt: string;
  /** Right answer. */
  readonly answer: string;
}

/** Reward of an answer: 1 for the right one plus 0.2 for digits only; the share of digits in the text; thousands of characters. */
export type RlReward = "exact" | "digits" | "length";

/** Input of `rl-step-library.ts` and `trl_step.py`. */
export interface RlStepInput {
  readonly directory: string;
  readonly groups: number;
  /** Answers to each problem. */
  readonly size: number;
  /** Max tokens of an answer. */
  readonly tokens: number;
  readonly steps: number;
  readonly rank: number;
  readonly threads: number;
  /** Number formats of the library's engine. @default float32 */
  readonly precisions?: Pick<OnnxEngineOptions, "weightPrecision" | "rolloutPrecision">;
  readonly learningRate: number;
  readonly maxGradNorm: number;
  readonly seed: number;
  readonly reward: RlReward;
  /** Problems of all steps, one after the other. */
  readonly problems: readonly RlProblem[];
}

/** RL step: rollouts and training. */
export interface RlStep {
  readonly seconds: number;
  /** Processor time of all threads, in seconds. */
  readonly cpuSeconds: number;
  /** Sampled tokens. */
  readonly tokens: number;
  /** Mean reward. */
  readonly reward: number;
}

/** Output of both programs. */
export interface RlStepResult {
  readonly steps: readonly RlStep[];
  /** Phases of the library; none for TRL. */
  readonly phases: readonly PhaseUse[];
  /** Peak of the resident memory of the process, in 10⁶ bytes. */
  readonly peakMb: number;
}

/** Settings that both sides share. */
export const SHARED = { learningRate: 1e-4, maxGradNorm: 1 } as const;

export async function run(args: string[]): Promise<void> {
  const { values } = parseArgs({
    args,
    options: {
      base: { type: "string" },
      vs: { type: "string" },
      python: { type: "string", default: "python3" },
      steps: { type: "string", default: "3" },
      groups: { type: "string", default: "16" },
      size: { type: "string", default: "8" },
      tokens: { type: "string", default: "16" },
      rank: { type: "string", default: "16" },
      threads: { type: "string", default: "2" },
      seed: { type: "string", default: "1" },
      reward: { type: "string", default: "exact" },
      "learning-rate": { type: "string", default: String(SHARED.learningRate) },
      "weight-precision": { type: "string", default: "float32" },
      "rollout-precision": { type: "string", default: "float32" },
    },
  });
  const { base, vs, python } = values;
  if (base === undefined) throw new OptionError("Expected --base with the directory of a model in Hugging Face layout, got none");
  if (vs !== undefined && vs !== "trl") throw new OptionError(`Expected --vs to be trl, got "${vs}"`);
  const { reward } = values;
  if (reward !== "exact" && reward !== "digits") throw new OptionError(`Expected --reward to be exact or digits, got "${reward}"`);
  const learningRate = Number(values["learning-rate"]);
  if (!(learningRate > 0)) throw new OptionError(`Expected --learning-rate to be a number above 0, got "${values["learning-rate"]}"`);
  const [steps, groups, seed] = [whole("steps", values.steps), whole("groups", values.groups), whole("seed", values.seed)];
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
    seed,
    ...SHARED,
    learningRate,
    reward,
    problems: additions(steps * groups, seed),
  };
  const variants: Variant[] = [{ label: "whetstone", program: new URL("rl-step-library.ts", import.meta.url), input }];
  if (vs === "trl") variants.push({ label: "TRL", program: new URL("trl_step.py", import.meta.url), input, python });
  console.log(
    `${steps} RL steps of ${groups} × ${input.size} answers of at most ${input.tokens} tokens, adapter of rank ${input.rank}, weights in ${values["weight-precision"]}, rollouts in ${values["rollout-precision"]}\n`,
  );
  const results = (await measureInTurn<RlStepResult>(variants, 1)).map(([result]) => result!);
  printTable(
    ["", "step", "s", "CPU s", "tokens", "mean reward"],
    variants.flatMap(({ label }, at) =>
      results[at]!.steps.map(({ seconds, cpuSeconds, tokens, reward }, step) => [
        label,
        String(step + 1),
        seconds.toFixed(1),
        cpuSeconds.toFixed(1),
        String(tokens),
        reward.toFixed(3),
      ]),
    ),
  );
  const [own, peer] = results.map(({ steps: each, peakMb }) => ({
    seconds: median(each.map(({ seconds }) => seconds)),
    cpuSeconds: median(each.map(({ cpuSeconds }) => cpuSeconds)),
    peakMb,
  }));
  const rows = variants.map(({ label }, at) => {
    const { seconds, cpuSeconds, peakMb } = [own, peer][at]!;
    return [label, seconds.toFixed(1), cpuSeconds.toFixed(1), peakMb.toFixed(0)];
  });
  if (own && peer)
    rows.push([
      "ratio",
      (own.seconds / peer.seconds).toFixed(2),
      (own.cpuSeconds / peer.cpuSeconds).toFixed(2),
      (own.peakMb / peer.peakMb).toFixed(2),
    ]);
  printTable(["", "median s per step", "median CPU s per step", "peak resident memory, MB"], rows);
}

/** Returns `count` distinct additions of two numbers from 2 to 59, in an order that depends on the seed. */
function additions(count: number, seed: number): RlProblem[] {
  const SIZE = 58;
  if (count > SIZE * SIZE) throw new OptionError(`Expected --steps times --groups to be at most ${SIZE * SIZE} problems, got ${count}`);
  // Multiples of a number without a common divisor visit each pair once.
  return Array.from({ length: count }, (_, index) => {
    const pair = (seed * 977 + index * 1223) % (SIZE * SIZE);
    const [x, y] = [2 + Math.floor(pair / SIZE), 2 + (pair % SIZE)];
    return { prompt: `What is ${x} + ${y}? Answer with only the number.`, answer: String(x + y) };
  });
}
