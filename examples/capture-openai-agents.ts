/**
 * Capture agents of the OpenAI Agents SDK, four at once: each rollout is a scope of its own, and together they are a group to train on.
 * Starts the embedded service.
 *
 *   node --conditions=whetstone/source --import tsx examples/capture-openai-agents.ts
 *
 * Prints each trajectory of the group, and what the group is worth to training.
 */
import { Agent, Runner, setDefaultOpenAIClient, setOpenAIAPI, setTracingDisabled } from "@openai/agents";
import OpenAI from "openai";
import { connect, gatherTrajectoryGroups } from "whetstone";
import { capture } from "whetstone/capture";

const service = await connect();
const model = await service.models.create({ project: "demo", name: "captured", baseModel: "whetstone-tiny", returnExisting: true });
const policy = await model.policy();
const client = new OpenAI({ baseURL: service.inferenceUrl, apiKey: service.apiKey, fetch: capture.fetch });
// The SDK may bring an openai of another version than the project's; to it they are the same.
setDefaultOpenAIClient(client as unknown as Parameters<typeof setDefaultOpenAIClient>[0]);
setOpenAIAPI("chat_completions");
setTracingDisabled(true);

/** The agent, as it was. */
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
