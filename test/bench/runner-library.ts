/**
 * The same completions through the library: rollouts become trajectories, trajectories groups. With `directory` the groups are
 * written to a file there; without, they are dropped. `runner-library.ts <file with PeerInput as JSON>`.
 */
import { createWriteStream } from "node:fs";
import { join } from "node:path";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { connect, Model, streamTrajectoryGroups, trajectory, type RolloutContext } from "../../src/index.ts";
import { Meter } from "./runner-meter.ts";
import { GROUP_SIZE, promptOf, type PeerInput } from "./runner.bench.ts";
import { variantInput } from "./support.ts";

const { url, completions, concurrency, warmUp, directory } = variantInput<PeerInput>();
const service = await connect({ baseUrl: url, apiKey: "bench", connections: concurrency });
const model = new Model(service, {
  id: "0b0e8e5c-0000-4000-8000-000000000000",
  entity: "team",
  project: "bench",
  name: "runner",
  baseModel: "tiny",
  runId: null,
  lora: null,
});
const policy = await model.policy(0);

async function rollout(scenario: number, context: RolloutContext) {
  const t = trajectory({ messages: [{ role: "user", content: promptOf(scenario) }] });
  await t.sample(context.policy, { maxCompletionTokens: 32, ...context.sampling });
  return t.finish({ reward: t.lastText.length % 2 });
}

async function* lines(count: number, onEach: () => void): AsyncGenerator<string> {
  const scenarios = Array.from({ length: count / GROUP_SIZE }, (_, scenario) => scenario);
  for await (const group of streamTrajectoryGroups(scenarios, rollout, { groupSize: GROUP_SIZE, concurrency, policy, seed: 1 })) {
    if (group.trajectories.length !== GROUP_SIZE) throw new Error("Expected every rollout to succeed");
    if (directory !== undefined) yield `${JSON.stringify(group)}\n`;
    for (const _ of group.trajectories) onEach();
  }
}

async function play(count: number, onEach: () => void): Promise<void> {
  if (directory !== undefined) return pipeline(Readable.from(lines(count, onEach)), createWriteStream(join(directory, "groups.jsonl")));
  for await (const _ of lines(count, onEach));
}

await play(warmUp, () => {});
const meter = new Meter();
await play(completions, () => meter.count());
console.log(JSON.stringify(meter.result()));
await service.close();
