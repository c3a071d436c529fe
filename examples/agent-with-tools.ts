/**
 * An agent with a tool: the model calls the tool, receives its result, and repeats it. Starts the embedded service.
 *
 *   node --conditions=whetstone/source --import tsx examples/agent-with-tools.ts
 *
 * Prints two conversations (the tool fails in the second one), the stop reason of each, and its metrics.
 */
import { connect, trajectory } from "whetstone";
import { defineTool, runAgent } from "whetstone/agent";
import { z } from "zod";

const stock: Readonly<Record<string, number>> = { kat: 7, bol: 12 };

const find = defineTool({
  name: "find",
  description: "Gives the number of what is called so.",
  schema: z.object({ name: z.string() }),
  run: ({ name }) => {
    const number = stock[name];
    if (number === undefined) throw new Error(`nothing is called ${name}`); // the model sees this and may retry
    return number;
  },
});

const service = await connect();
const model = await service.models.create({ project: "demo", name: "agent", baseModel: "whetstone-tiny", returnExisting: true });
const policy = await model.policy(0);

for (const key of ["kat", "xyz"]) {
  const t = trajectory({ messages: [{ role: "user", content: `Use find with name ${key}` }], tools: [find] });
  const run = await runAgent(t, policy, { maxTurns: 4, maxCompletionTokens: 48, temperature: 0 });
  const finished = t.finish({ reward: run.text === String(stock[key]) ? 1 : 0 });
  for (const { role, content, tool_calls: calls } of finished.messages())
    console.log(role.padEnd(9), content, calls?.map((call) => call.function) ?? "");
  console.log(run.stopReason, finished.metrics);
}
await service.close();
