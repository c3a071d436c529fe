/**
 * RL with an agent in another process: a Python program, with only its standard library, samples the policy through sessions and posts its
 * rewards. Needs `python3`. Starts the embedded service.
 *
 *   node --conditions=whetstone/source --import tsx examples/external-agent.ts [steps] [prompts per step]
 *
 * Prints each step's mean reward; each prompt has 8 sessions. A second run resumes from the last checkpoint.
 */
import { spawn } from "node:child_process";
import { fileURLToPath } from "node:url";
import { connect, gatherTrajectoryGroups } from "whetstone";
import { capture } from "whetstone/capture";

const [steps = "10", prompts = "8"] = process.argv.slice(2);
const service = await connect();
const model = await service.models.create({ project: "demo", name: "external", baseModel: "whetstone-tiny", returnExisting: true });

// One process plays all rollouts: it reads a task per line, with the address and key of the session.
const program = fileURLToPath(new URL("external-agent.py", import.meta.url));
const agent = spawn("python3", [program], { stdio: ["pipe", "inherit", "inherit"] });

for (let step = await model.step(); step < Number(steps); step++) {
  const policy = await model.policy(step);
  const groups = await gatherTrajectoryGroups(
    words(step, Number(prompts)),
    (word, { sampling: { temperature, seed }, signal }) =>
      capture.session(service, {
        model: policy.id,
        samplingDefaults: { temperature, seed, maxCompletionTokens: 12 },
        metadata: { scenario_id: word },
        signal,
        run: ({ urls, key }) =>
          void agent.stdin.write(`${JSON.stringify({ word, baseUrl: urls.openai, sessionUrl: urls.session, key })}\n`),
      }),
    { groupSize: 8, concurrency: 64, seed: step, timeoutMs: 60_000, maxExceptions: 0, progress: false },
  );
  const { mean } = groups.stats.reward;
  console.log(`step ${step}: reward ${mean.toFixed(3)} of ${Number(prompts) * 8} sessions`);
  const job = await model.train(groups, { learningRate: 3e-4 });
  await job.done();
}
agent.stdin.end();
await service.close();

/** Returns `count` words for a step: different at each step, the same in each run. */
function words(step: number, count: number): string[] {
  return Array.from({ length: count }, (_, k) => {
    const place = ((step * count + k) * 7919 + 1234) % 8 ** 4;
    return Array.from({ length: 4 }, (__, i) => "abcdefgh"[Math.floor(place / 8 ** i) % 8]).join("");
  });
}
