/** Plays and trains RL steps through the library, with the service in the same process: `rl-step-library.ts <file with RlStepInput as JSON>`. */
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { connect, gatherTrajectoryGroups, trajectory } from "whetstone";
import { createOnnxEngine } from "../../src/engine/index.ts";
import { startService } from "../../src/service/index.ts";
import { PhaseMeter } from "./resident-memory.ts";
import type { RlProblem, RlStep, RlStepInput, RlStepResult } from "./rl-step.bench.ts";
import { variantInput } from "./support.ts";

const input = variantInput<RlStepInput>();
const meter = new PhaseMeter();
const dataDir = await mkdtemp(join(tmpdir(), "whetstone-rl-step-"));
const { service, connection, model } = await meter.measure("load", async () => {
  const { directory, threads, precisions } = input;
  const engine = await createOnnxEngine({
    baseModels: { base: directory },
    trainerThreads: threads,
    samplerThreads: threads,
    ...precisions,
  });
  const service = await startService({ dataDir, engine });
  const connection = await connect({ baseUrl: service.url, apiKey: service.apiKey });
  const lora = { rank: input.rank, alpha: 2 * input.rank };
  const model = await connection.models.create({ project: "bench", name: "sums", baseModel: "base", lora });
  return { service, connection, model };
});

const steps: RlStep[] = [];
try {
  for (let step = 0; step < input.steps; step++) {
    const groups = await meter.measure(`sampling ${step + 1}`, () => play(step));
    const { stats } = groups;
    await meter.measure(`training ${step + 1}`, async () => {
      // Groups of equal rewards have zero advantages.
      if (stats.trainableGroups === 0) return;
      const job = await model.train(groups, { learningRate: input.learningRate, maxGradNorm: input.maxGradNorm });
      await job.done();
    });
    const [sampling, training] = meter.phases.slice(-2) as [(typeof meter.phases)[number], (typeof meter.phases)[number]];
    steps.push({
      seconds: sampling.seconds + training.seconds,
      cpuSeconds: sampling.cpuSeconds + training.cpuSeconds,
      tokens: stats.tokens.completion,
      reward: stats.reward.mean,
    });
  }
} finally {
  await connection.close();
  await service.close({ graceMs: 0 });
  await rm(dataDir, { recursive: true, force: true });
}
const { phases } = meter;
console.log(JSON.stringify({ steps, phases, peakMb: Math.max(...phases.map(({ peakMb }) => peakMb)) } satisfies RlStepResult));

/** Samples the groups of a step with the newest checkpoint. */
async function play(step: number) {
  const problems = input.problems.slice(step * input.groups, (step + 1) * input.groups);
  const policy = await model.policy();
  return gatherTrajectoryGroups(
    problems,
    async (problem, { seed, signal }) => {
      const t = trajectory({ messages: [{ role: "user", content: problem.prompt }] });
      await t.sample(policy, { temperature: 1, maxCompletionTokens: input.tokens, seed, signal });
      return t.finish({ reward: score(problem, t.lastText.trim()) });
    },
    { groupSize: input.size, concurrency: input.groups * input.size, seed: 1_000_003 * input.seed + step, progress: false },
  );
}

/** Returns the reward, see {@link RlStepInput}. */
function score({ answer }: RlProblem, text: string): number {
  if (input.reward === "digits") return (text.match(/\d/gu) ?? []).length / Math.max(1, text.length);
  if (input.reward === "length") return text.length / 1000;
  return Number(text === answer) + (/^\d+$/u.test(text) ? 0.2 : 0);
}
