/**
 * Captures agents of the OpenAI Agents SDK, four at once: each rollout has its own scope, and the four trajectories are a group to train
 * on. Starts the embedded service.
 *
 *   node --conditions=whetstone/source --import tsx examples/capture-openai-agents.ts
 *
 * Prints each trajectory of the group, and the group's training statistics.
 */
import { Agent, Runner, setDefaultOpenAIClient, setOpenAIAPI, setTracingDisabled } from "@openai/agents";
import OpenAI from "openai";
import { connect, gatherTrajectoryGroups } from "whetstone";
import { capture } from "whetstone/capture";

const service = await connect();
const model = await service.models.create({ project: "demo", name: "captured", baseModel: "whetstone-tiny", returnExisting: true });
const policy = await model.policy();
const client = new OpenAI({ baseURL: service.inferenceUrl, apiKey: service.apiKey, fetch: capture.fetch });
// The SDK may depend on another version of openai than the project; the two client types are compatible at runtime.
setDefaultOpenAIClient(client as unknown as Parameters<typeof setDefaultOpenAIClient>[0]);
setOpenAIAPI("chat_completions");
setTracingDisabled(true);

/** Runs the unmodified agent. */
async function answer(word: string): Promise<{ readonly reward: number }> {
  const agent = new Agent({ name: "speller", instructions: "Spell.", model: policy.id, modelSettings: { maxTokens: 8 } });
  const { finalOutput } = await new Runner().run(agent, word);
  return { reward: String(finalOutput).length };
}

const rollout = (word: string) => capture.trajectory(() => answer(word), { policy });
const groups = await gatherTrajectoryGroups(["cat"], rollout, { groupSize: 4 });

for (const trajectory of groups.flatMap((group) => group.trajectories)) {
  const sampled = trajectory.choices.map((choice) => choice.token_ids?.length);
  console.log({ text: trajectory.lastText, sampled, reward: trajectory.reward });
}
console.log({ trainableGroups: groups.stats.trainableGroups, completionTokens: groups.stats.tokens.completion });
await service.close();
