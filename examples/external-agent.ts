/**
 * RL on reverse-text with an agent in another process: a Python program, with only its standard library, samples the policy through
 * sessions and posts its rewards. Needs `python3`. Starts the embedded service. Prints each step's mean reward; each prompt has 8 sessions.
 * A second run resumes from the last checkpoint.
 *
 *   node --conditions=whetstone/source --import tsx examples/external-agent.ts [steps] [prompts per step]
 */
import { spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { fileURLToPath } from "node:url";
import { connect, gatherTrajectoryGroups, uploadDataset } from "whetstone";
import { capture } from "whetstone/capture";

const [steps = 10, prompts = 8] = process.argv.slice(2).map(Number);
if (![steps, prompts].every((value) => Number.isInteger(value) && value >= 1)) {
  console.error("Usage: external-agent.ts [steps] [prompts per step], whole numbers from 1");
  process.exit(2);
}
const service = await connect();
const model = await service.models.create({ project: "demo", name: "external", baseModel: "whetstone-tiny", returnExisting: true });
/** Text `index` of a split: 3 or 4 random letters, the same in each run. */
function text(split: string, index: number): string {
  const [length, ...letters] = createHash("sha256").update(`${split} ${index}`).digest();
  return Array.from(letters.slice(0, 3 + (length! % 2)), (byte) => String.fromCharCode(97 + (byte % 26))).join("");
}

// Checkpoint 1 has seen 480 right answers to the agent's prompt: the base model cannot reverse a text.
const system = "Reverse the text character-by-character. Put your answer in `<reversed_text>` tags.";
if ((await model.step()) === 0) {
  const train = Array.from({ length: 480 }, (_, index) => {
    const given = text("examples", index);
    const answer = `<reversed_text>${[...given].reverse().join("")}</reversed_text>`;
    return { messages: Object.entries({ system, user: given, assistant: answer }).map(([role, content]) => ({ role, content })) };
  });
  const data = await uploadDataset(service, { project: "demo", name: "external", train });
  await (await model.trainSft(data, { batchSize: 32, learningRate: 3e-4 })).done();
}

// One process plays all rollouts: it reads a task per line, with the address and key of the session.
const agent = spawn("python3", [fileURLToPath(new URL("external-agent.py", import.meta.url))], { stdio: ["pipe", "inherit", "inherit"] });
for (let step = (await model.step()) - 1; step < steps; step++) {
  const policy = await model.policy();
  const groups = await gatherTrajectoryGroups(
    Array.from({ length: prompts }, (_, k) => text("rl", step * prompts + k)),
    (given, { sampling: { temperature, seed }, signal }) =>
      capture.session(service, {
        model: policy.id,
        samplingDefaults: { temperature, seed, maxCompletionTokens: 16 },
        metadata: { scenario_id: given },
        signal,
        run: ({ urls, key }) =>
          void agent.stdin.write(`${JSON.stringify({ text: given, baseUrl: urls.openai, sessionUrl: urls.session, key })}\n`),
      }),
    { groupSize: 8, concurrency: 64, seed: step, timeoutMs: 60_000, maxExceptions: 0, progress: false },
  );
  console.log(`step ${step}: reward ${groups.stats.reward.mean.toFixed(3)} of ${prompts * 8} sessions`);
  await (await model.train(groups, { learningRate: 3e-4 })).done();
}
agent.stdin.end();
await service.close();
