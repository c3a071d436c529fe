/**
 * Writes a run directory of any size through the writers of training runs: `npm run -s large-run -- <directory> [steps] [groups] [size]`
 * for one run with 100,000 trajectories by default.
 */
import { mkdir, rm } from "node:fs/promises";
import { join } from "node:path";
import { writeJsonLines } from "../../src/library/dataset/jsonl.ts";
import { RunDirectory } from "../../src/run/run-directory.ts";
import { trajectoryGroup } from "../../src/base/schema/index.ts";
import { TrajectoryGroup } from "../../src/base/trajectory/index.ts";
import { isChoice } from "../../src/base/trajectory/messages.ts";
import { uniform } from "../../src/base/util/rng.ts";

/** Size of a run. */
export interface LargeRunOptions {
  readonly steps: number;
  /** Groups of each step. */
  readonly groups: number;
  /** Trajectories of each group. */
  readonly size: number;
  /** Sampled tokens of each trajectory. @default 32 */
  readonly tokens?: number;
  /** Steps between two evaluations. @default 50 */
  readonly evalEvery?: number;
  /** Called after each step, with the number of completed steps. */
  readonly onStep?: (completed: number) => Promise<void> | void;
  /** Whether to leave the run as an interrupted process would. @default false */
  readonly isInterrupted?: boolean;
}

const WORDS = ["the ", "answer ", "is ", "seven ", "and ", "then ", "add ", "three ", "which ", "makes ", "ten ", "so "];

/** Writes the run; an existing directory is replaced. */
export async function writeLargeRun(path: string, options: LargeRunOptions): Promise<void> {
  const { steps, groups, size, tokens = 32, evalEvery = 50, onStep, isInterrupted = false } = options;
  await rm(path, { recursive: true, force: true });
  const fixed = { model: "local/demo/large", base_model: "whetstone-tiny", environment: "arithmetic", group_size: size };
  const run = await RunDirectory.open(path, { version: 1, kind: "rl", fixed, free: { steps } });
  let drawn = 0;
  const random = () => uniform(7n, drawn++);
  const groupOf = (split: "train" | "eval", step: number, index: number) => {
    const trajectories = Array.from({ length: split === "train" ? size : 1 }, () => {
      const reward = random() < (step + 10) / (steps + 20) ? 1 : 0;
      return trajectory(reward, { step, tokens, random });
    });
    const scenario = split === "train" ? step * groups + index : index;
    const metadata = { step, scenario_index: scenario, scenario_id: `sum-${index}`, seed: 7, checkpoint_step: step, policy_version: step };
    return TrajectoryGroup.fromJSON({ trajectories, exceptions: [], metadata, metrics: {}, logs: [] });
  };
  const write = async (split: "train" | "eval", step: number) => {
    const written = Array.from({ length: groups }, (_, index) => groupOf(split, step, index));
    for (const group of written) await run.addGroup(split, step, group);
    await run.closeGroups(split, step);
    const rewards = written.flatMap(({ trajectories }) => trajectories.map(({ reward }) => reward));
    return { written, mean: rewards.reduce((sum, reward) => sum + reward, 0) / rewards.length };
  };
  const evaluation = async (step: number) => {
    await run.record({ type: "evaluation-start", step, checkpointStep: step });
    const { mean } = await write("eval", step);
    const metrics = { "eval/reward/mean": mean, "eval/rollout/groups": groups, "eval/rollout/trajectories": groups };
    await run.record({ type: "evaluation-end", step, checkpointStep: step, metrics });
  };
  try {
    await run.record({ type: "run-start", kind: "rl", modelId: "model", checkpointStep: 0, steps });
    await evaluation(0);
    await mkdir(join(path, "trained"), { recursive: true });
    for (let step = 0; step < steps; step++) {
      await run.record({ type: "step-start", step, policyVersion: step, checkpointStep: step });
      const { written, mean } = await write("train", step);
      await run.record({ type: "rollouts-end", step, groups, staleGroups: 0, exceptions: 0, rewardMean: mean });
      await run.record({ type: "job-intent", step, attempt: 0, key: `key-${step}`, baselineStep: step });
      await run.record({ type: "job-start", step, attempt: 0, jobId: `job-${step}` });
      const other = Object.fromEntries(Array.from({ length: 54 }, (_, index) => [`metric/measure_${index}`, random()]));
      const metrics = {
        ...{ "reward/mean": mean, "reward/std": Math.sqrt(mean * (1 - mean)), loss: -random() / 10, grad_norm: 1 + random() },
        ...{ "rollout/groups": groups, "rollout/trajectories": groups * size, "time/step_seconds": 2 + random(), ...other },
      };
      await run.record({ type: "gradient-step", step, jobId: `job-${step}`, jobEventId: `event-${step}`, metrics });
      if (step % evalEvery === 0) await writeJsonLines(join(path, "trained", `${String(step).padStart(6, "0")}.jsonl`), trained(written));
      await run.record({ type: "step-end", step, policyStep: step, checkpointStep: step + 1, metrics });
      if ((step + 1) % evalEvery === 0) await evaluation(step + 1);
      await onStep?.(step + 1);
    }
    if (!isInterrupted) await run.record({ type: "run-end", reason: "completed", steps, checkpointStep: steps });
  } finally {
    await run.close();
  }
}

function trajectory(reward: number, { step, tokens, random }: { step: number; tokens: number; random: () => number }): object {
  const words = Array.from({ length: tokens }, () => WORDS[Math.floor(random() * WORDS.length)] ?? "");
  const content = words.map((token) => ({
    ...{ token, bytes: [...Buffer.from(token)], logprob: Math.log(0.05 + 0.95 * random()), top_logprobs: [] },
  }));
  const choice = {
    ...{ index: 0, message: { role: "assistant", content: words.join("") }, finish_reason: "stop", logprobs: { content } },
    ...{ prompt_token_ids: [1, 2, 3], token_ids: words.map((_, index) => index + 4), policy_version: step },
  };
  const messages_and_choices = [{ role: "user", content: "What is three plus seven?" }, choice];
  const versions = { initial_policy_version: step, final_policy_version: step };
  return { messages_and_choices, reward, ...versions, metrics: { exact: reward === 1, duration: random() }, metadata: {}, logs: [] };
}

/** Values of the trainer: the log-probabilities of the sampler, moved by a little. */
function trained(groups: readonly TrajectoryGroup[]): object[] {
  return groups.flatMap((group) =>
    trajectoryGroup.parse(group.toJSON()).trajectories.map(({ messages_and_choices: items, reward }, index) => ({
      ...{ scenario_index: group.metadata["scenario_index"], trajectory_index: index },
      turns: items.filter(isChoice).map(({ logprobs }) => ({
        advantage: reward - 0.5,
        logprobs: logprobs?.content?.map(({ logprob }) => logprob - 0.01) ?? null,
      })),
    })),
  );
}

if (process.argv[1] === import.meta.filename) {
  const [directory = "runs/large", ...numbers] = process.argv.slice(2);
  const [steps = 300, groups = 21, size = 16] = numbers.map(Number);
  await writeLargeRun(directory, { steps, groups, size });
}
