/** Run directories of any size with plausible contents; equal options give equal bytes. */
import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { seededRandom } from "../support/seeded-random.ts";

/** Options of {@link generateRun}. */
export interface GeneratedRun {
  readonly name: string;
  readonly seed: number;
  readonly steps: number;
  /** Groups of each step. @default 4 */
  readonly groups?: number;
  /** Trajectories of each group. @default 4 */
  readonly size?: number;
  /** Interval of evaluations in steps; 0 for none. @default 10 */
  readonly evaluateEvery?: number;
  /** Whether sampled turns have tokens with log-probabilities. @default true */
  readonly hasTokens?: boolean;
  /** Whether a tool result, another one at each step, precedes each answer. @default false */
  readonly hasTool?: boolean;
  /** Whether the run recorded its end. @default true */
  readonly hasEnded?: boolean;
}

/** Start of the recorded times. */
const START_MS = Date.UTC(2026, 0, 5, 9, 0, 0);
const STEP_MS = 14_000;

const lines = (rows: readonly object[]) => rows.map((row) => `${JSON.stringify(row)}\n`).join("");
const fileName = (step: number) => `${String(step).padStart(6, "0")}.jsonl`;
const timeOf = (step: number) => new Date(START_MS + step * STEP_MS).toISOString();
const rounded = (value: number) => Math.round(value * 1e4) / 1e4;

/** Question with its answer. */
function question(index: number): { readonly text: string; readonly sum: number } {
  const [a, b] = [12 + ((index * 37) % 80), 5 + ((index * 53) % 90)];
  return { text: `What is ${a} + ${b}?`, sum: a + b };
}

/** Returns a sampled answer: a short derivation, right or wrong. */
function answer(index: number, { isRight, step, random }: { isRight: boolean; step: number; random: () => number }): string {
  const { sum } = question(index);
  const value = isRight ? sum : sum + 1 + Math.floor(random() * 9);
  const opening = random() < 0.5 - step / 400 ? "Let me think about it. " : "";
  return `${opening}Add the tens first, then the ones.\nThe sum is ${value}.`;
}

function sampledTurn(text: string, { random, step, certainty }: { random: () => number; step: number; certainty: number }): object {
  const tokens = text.match(/\s?\w+|[^\w\s]|\s/gu) ?? [];
  return {
    index: 0,
    message: { role: "assistant", content: text },
    finish_reason: "stop",
    prompt_token_ids: Array.from({ length: 24 }, (_, at) => at),
    token_ids: tokens.map((_, at) => 200 + at),
    logprobs: {
      content: tokens.map((token) => ({
        token,
        bytes: [...Buffer.from(token)],
        logprob: -rounded(random() ** 3 * 4 * (1.2 - certainty)),
        top_logprobs: [],
      })),
    },
    policy_version: step,
  };
}

interface TrajectoryOptions {
  readonly step: number;
  readonly success: number;
  readonly random: () => number;
  readonly hasTokens: boolean;
  readonly hasTool: boolean;
}

function trajectoryOf(index: number, { step, success, random, hasTokens, hasTool }: TrajectoryOptions): object {
  const isRight = random() < success;
  const text = answer(index, { isRight, step, random });
  const choice = hasTokens
    ? sampledTurn(text, { random, step, certainty: success })
    : { index: 0, message: { role: "assistant", content: text }, finish_reason: "stop", policy_version: step };
  const duration = rounded(0.4 + random());
  const tool = hasTool ? [{ role: "tool", tool_call_id: "call_1", content: `calculated in step-${1000 + step}` }] : [];
  const context = [
    { role: "system", content: "Answer with the sum." },
    { role: "user", content: question(index).text },
  ];
  return {
    messages_and_choices: [...context, ...tool, choice],
    tools: null,
    additional_histories: [],
    reward: isRight ? 1 : rounded(Math.floor(random() * 4) * 0.1),
    initial_policy_version: step,
    final_policy_version: step,
    metrics: { duration, sample_duration: rounded(duration * 0.8), right: isRight },
    metadata: {},
    logs: [],
    start_time: timeOf(step),
  };
}

/** Returns the trainer's log-probabilities: the sampler's with small differences. */
function trainedOf(rollouts: readonly { readonly trajectories: readonly object[] }[], random: () => number): object[] {
  return rollouts.flatMap(({ trajectories }, group) =>
    trajectories.map((each, index) => {
      const choice = (Reflect.get(each, "messages_and_choices") as { logprobs: { content: { logprob: number }[] } }[]).at(-1);
      const logprobs = (choice?.logprobs.content ?? []).map(({ logprob }) => Math.min(0, rounded(logprob + (random() - 0.5) * 0.2)));
      return { scenario_index: group, trajectory_index: index, turns: [{ advantage: rounded(random() * 2 - 1), logprobs }] };
    }),
  );
}

/** Writes a run below `root` and returns its directory. */
export async function generateRun(root: string, options: GeneratedRun): Promise<string> {
  const { name, seed, steps, groups = 4, size = 4, evaluateEvery = 10, hasTokens = true, hasTool = false, hasEnded = true } = options;
  const random = seededRandom(seed);
  const directory = join(root, name);
  for (const folder of ["trajectories/train", "trajectories/eval", "trained"]) await mkdir(join(directory, folder), { recursive: true });
  const successAt = (step: number) => 0.15 + 0.8 * (1 - Math.exp((-step * (1 + (seed % 3) * 0.3)) / (0.35 * steps + 1)));
  const rolloutsOf = (step: number, count: number, per: number) =>
    Array.from({ length: count }, (_, group) => ({
      trajectories: Array.from({ length: per }, () => trajectoryOf(group, { step, success: successAt(step), random, hasTokens, hasTool })),
      exceptions:
        group === 2 && step % 7 === 3 ? [{ type: "TimeoutError", message: "No answer within 30 s", traceback: "at rollout" }] : [],
      metadata: { step, scenario_index: group, scenario_id: `sum-${String(group).padStart(3, "0")}`, seed },
      metrics: {},
      logs: [],
    }));
  const rewardOf = (rollouts: ReturnType<typeof rolloutsOf>) => {
    const rewards = rollouts.flatMap(({ trajectories }) => trajectories.map((each) => Reflect.get(each, "reward") as number));
    const mean = rewards.reduce((sum, each) => sum + each, 0) / rewards.length;
    return { mean, std: Math.sqrt(rewards.reduce((sum, each) => sum + (each - mean) ** 2, 0) / rewards.length), count: rewards.length };
  };
  const metrics: object[] = [];
  for (let step = 0; step < steps; step++) {
    const rollouts = rolloutsOf(step, groups, size);
    const { mean, std, count } = rewardOf(rollouts);
    if (step === steps - 1 && hasTokens) await writeFile(join(directory, "trained", fileName(step)), lines(trainedOf(rollouts, random)));
    await writeFile(join(directory, "trajectories/train", fileName(step)), lines(rollouts));
    const progress = step / steps;
    metrics.push({
      step,
      split: "train",
      time: timeOf(step),
      "reward/mean": rounded(mean),
      "reward/std": rounded(std),
      loss: rounded(-0.02 - 0.05 * random() * (1 - progress)),
      grad_norm: rounded(0.3 + 0.4 * random() + 0.6 * Math.exp(-6 * progress)),
      entropy: rounded(0.4 + 1.3 * Math.exp(-3 * progress) + 0.05 * random()),
      kl_policy_reference: rounded(0.08 * progress + 0.004 * random()),
      "time/step_seconds": rounded(9 + 3 * random()),
      "time/tokens_per_second": rounded(2400 + 300 * random()),
      logprob_difference_mean: rounded(2e-4 + 1e-4 * random()),
      "metric/right": rounded(mean),
      "rollout/trajectories": count,
      "rollout/groups": groups,
    });
    if (evaluateEvery === 0 || step % evaluateEvery !== evaluateEvery - 1) continue;
    const evaluated = rolloutsOf(step, Math.max(groups, 8), 1);
    await writeFile(join(directory, "trajectories/eval", fileName(step)), lines(evaluated));
    metrics.push({ step, split: "eval", time: timeOf(step), "eval/reward/mean": rounded(rewardOf(evaluated).mean) });
  }
  const kept = Array.from({ length: Math.floor(steps / 10) }, (_, at) => at * 10 + 9);
  const checkpoint = (step: number, event: string) => ({ time: timeOf(step), event, step: step + 1, id: `c${seed}-${step}`, metrics: {} });
  await Promise.all([
    writeFile(
      join(directory, "config.json"),
      JSON.stringify({
        environment: "arithmetic",
        model: name,
        base_model: "whetstone-tiny",
        steps,
        groups: { count: groups, size },
        learning_rate: 5e-5,
        seed,
      }),
    ),
    writeFile(join(directory, "metrics.jsonl"), lines(metrics)),
    writeFile(
      join(directory, "checkpoints.jsonl"),
      lines([...kept.map((step) => checkpoint(step, "created")), ...kept.slice(0, -3).map((step) => checkpoint(step, "deleted"))]),
    ),
    writeFile(
      join(directory, "events.jsonl"),
      lines([
        { seq: 0, time: timeOf(0), type: "run-start", steps },
        { seq: 1, time: timeOf(3), type: "warning", step: 3, message: "1 of 16 rollouts failed: TimeoutError" },
        ...(hasEnded ? [{ seq: 2, time: timeOf(steps), type: "run-end", reason: "completed" }] : []),
      ]),
    ),
  ]);
  return directory;
}
