/** Runs the quickstart's stages up to a share of exact answers: `grpo-recipe.ts <file with GrpoInput as JSON>`. */
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { connect } from "whetstone";
import { defaults } from "../../recipes/reverse-text/config.ts";
import type { SftThenRlConfig } from "../../recipes/shared/sft-then-rl.ts";
import { measure, reinforce, scenarios, superviseJob } from "./grpo-stages.ts";
import type { GrpoInput, GrpoPoint, GrpoResult, GrpoStep } from "./grpo.bench.ts";
import { variantInput } from "./support.ts";

const { seed, target, maxSteps, every } = variantInput<GrpoInput>();
const config: SftThenRlConfig = { ...defaults, seed };
const { signal } = new AbortController();
const dataDir = await mkdtemp(join(tmpdir(), "whetstone-grpo-"));
const started = performance.now();
const secondsSince = (ms: number) => (performance.now() - ms) / 1000;

const service = await connect({ dataDir });
const jobs: number[] = [];
const steps: GrpoStep[] = [];
const points: GrpoPoint[] = [];
try {
  const model = await service.models.create({ project: "bench", name: "reverse", baseModel: "whetstone-tiny", signal });
  const [validation, heldOut] = [scenarios("validation", seed, 0, config.sft.validation), scenarios("held-out", seed, 0, config.heldOut)];
  const exact = async (problems: typeof heldOut) => (await measure(await model.policy(), problems, signal)).exact;
  const measurePoint = async () => {
    points.push({ step: steps.length, exact: await exact(heldOut), seconds: secondsSince(started) });
  };

  await exact(heldOut);
  while (jobs.length < config.sft.maxJobs && (jobs.at(-1) ?? 0) < config.sft.stopAtExact) {
    await superviseJob(service, model, config, jobs.length, signal);
    jobs.push(await exact(validation));
  }
  await measurePoint();
  let checkpoint = await model.step();
  while (points.at(-1)!.exact < target && steps.length < maxSteps) {
    const before = performance.now();
    const done = await reinforce(model, config, steps.length, checkpoint, signal);
    checkpoint = done.step;
    steps.push({ seconds: secondsSince(before), reward: done.reward });
    if (steps.length % every === 0 || steps.length === maxSteps) await measurePoint();
  }
} finally {
  await service.close();
  await rm(dataDir, { recursive: true, force: true });
}
const { user, system } = process.cpuUsage();
console.log(JSON.stringify({ jobs, steps, points, cpuSeconds: (user + system) / 1e6 } satisfies GrpoResult));
