/** An agent on the AI SDK, changed only in its fetch and the scope of its rollouts: collected in groups, scored by another model, trained. */
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, jsonSchema, stepCountIs, tool } from "ai";
import { expect, it } from "vitest";
import { capture } from "../../src/library/capture/index.ts";
import { gatherTrajectoryGroups } from "../../src/index.ts";
import { ADD_SCHEMA, startHarness, turnsOf } from "./support.ts";

it("captures an agent in groups, scores it with a judge and trains", async () => {
  // Every second rollout of a ticket uses the tool, in any order of the requests of both tickets.
  const counts = new Map<string, number>();
  const harness = await startHarness((prompt) => {
    if (prompt.includes("How good is")) return "0.5";
    const ticket = /T-\d/.exec(prompt)?.[0] ?? "";
    if (prompt.includes("<|tool|>")) return `closed ${ticket}`;
    const count = counts.get(ticket) ?? 0;
    counts.set(ticket, count + 1);
    return count % 2 === 0 ? '<tool_call>{"name": "look",  "arguments": {"a":1,"b":2}}</tool_call>' : "no idea";
  });
  const { service, policy } = harness;
  const tickets = [
    { key: "T-1", body: "Please close T-1" },
    { key: "T-2", body: "Please close T-2" },
  ];
  const tools = { look: tool({ inputSchema: jsonSchema(ADD_SCHEMA), execute: () => Promise.resolve("seen") }) };
  const judge = createOpenAICompatible({ name: "judge", baseURL: service.inferenceUrl, apiKey: service.apiKey, fetch: capture.fetch });
  const rubric = {
    async score(ticket: { readonly key: string }, text: string): Promise<number> {
      const { text: verdict } = await generateText({ model: judge("tiny"), prompt: "How good is it?" });
      return Number(verdict) + (text.includes(ticket.key) ? 0.5 : 0);
    },
  };

  const provider = createOpenAICompatible({
    name: "whetstone",
    baseURL: service.inferenceUrl,
    apiKey: service.apiKey,
    fetch: capture.fetch,
  });
  const groups = await gatherTrajectoryGroups(
    tickets,
    (ticket, { policy }) =>
      capture.trajectory(async () => {
        // scope of one rollout; calls to other models are not recorded
        const { text } = await generateText({ model: provider(policy.id), tools, stopWhen: stepCountIs(8), prompt: ticket.body });
        return { reward: await rubric.score(ticket, text), metrics: { resolved: text.includes(ticket.key) } };
      }),
    { policy, groupSize: 8 },
  );

  const ofPolicy = harness.sampled.length - 16;
  const trajectories = groups.flatMap((group) => group.trajectories);
  expect(trajectories).toHaveLength(16);
  expect(trajectories.flatMap(turnsOf)).toHaveLength(ofPolicy);
  for (const recorded of trajectories) {
    expect(recorded.toJSON().additional_histories).toEqual([]);
    expect(recorded.choices).toHaveLength(recorded.metrics["resolved"] === true ? 2 : 1);
    expect(recorded.reward).toBe(recorded.metrics["resolved"] === true ? 1 : 0.5);
  }
  const model = await service.models.create({ project: "demo", name: "agent", baseModel: "tiny", returnExisting: true });
  const { metrics } = await (await model.train(groups)).done();
  expect(metrics).toMatchObject({ "data/drifted_turns": 0, "data/merged_turns": ofPolicy - 16, "data/sequences": 16 });
});
