/**
 * Scenarios from the tools of an MCP server: a model writes the tasks, the library checks them and writes a training and an evaluation set.
 *
 *   node --conditions=whetstone/source --import tsx examples/generate-scenarios.ts [directory]
 *
 * The server runs in the same process. By default the model is a script whose first answer has a duplicate and an unknown tool. With
 * SCENARIO_BASE_URL, SCENARIO_API_KEY and SCENARIO_MODEL, it is a model of that endpoint. Prints the rejections, the sizes and a task.
 */
import { createHash } from "node:crypto";
import { join } from "node:path";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { InMemoryTransport } from "@modelcontextprotocol/sdk/inMemory.js";
import { McpServer } from "@modelcontextprotocol/sdk/server/mcp.js";
import { judgeEndpoint } from "whetstone/judge";
import { generateScenarios, readScenarios, splitScenarios, writeScenarios, type GenerateScenariosOptions } from "whetstone/scenarios";
import { createScriptedPolicy } from "whetstone/testing";
import { z } from "zod";

const [directory = "runs/scenarios"] = process.argv.slice(2);
if (directory.startsWith("-")) {
  console.error("Usage: generate-scenarios.ts [directory]");
  process.exit(2);
}
/** Titles of six letters in no pattern: a small model often copies a letter wrong. */
const title = (i: number) =>
  [...createHash("sha256").update(`${i}`).digest("hex").slice(0, 6)].map((digit) => "bdfgklmnprstaeiu"[parseInt(digit, 16)]);
const books = Array.from({ length: 26 }, (_, i) => title(i).join(""));

const server = new McpServer({ name: "library", version: "1.0.0" });
server.registerTool("find", { description: "Finds a book's shelf.", inputSchema: { name: z.string() } }, ({ name }) => ({
  content: [{ type: "text", text: books.includes(name) ? String(10 + books.indexOf(name)) : "none" }],
}));
const [ours, theirs] = InMemoryTransport.createLinkedPair();
const client = new Client({ name: "example", version: "1.0.0" });
await Promise.all([server.connect(theirs), client.connect(ours)]);

/** Answers of the script: eight tasks, of which two are rejected; two replacements; two further batches. */
function script(): GenerateScenariosOptions["model"] {
  const tasks = books.map((name) => ({ task: `Use find with name ${name}`, difficulty: 1, tools: ["find"] }));
  const first = [...tasks.slice(0, 6), tasks[0], { ...tasks[6], tools: ["burn"] }];
  const batches = [first, tasks.slice(6, 8), tasks.slice(8, 16), tasks.slice(16, 24)];
  return createScriptedPolicy(batches.map((scenarios) => ({ text: JSON.stringify({ scenarios }) })));
}

const { SCENARIO_BASE_URL: baseUrl, SCENARIO_API_KEY: apiKey, SCENARIO_MODEL: name = "whetstone-tiny" } = process.env;
const model = baseUrl === undefined ? script() : judgeEndpoint({ baseUrl, apiKey, model: name });
const { scenarios, rejected, requests } = await generateScenarios({ client, model, count: 24, batchSize: 8 });
for (const { request, reason, message } of rejected) console.log(`request ${request}: ${reason}: ${message}`);
const { train, eval: held } = splitScenarios(scenarios, { eval: 0.25, seed: 7 });
await writeScenarios(join(directory, "train.jsonl"), train);
await writeScenarios(join(directory, "eval.jsonl"), held);
console.log(`${scenarios.length} scenarios after ${requests} requests: ${train.length} train, ${held.length} eval`);
console.log((await readScenarios(join(directory, "train.jsonl")))[0]);
await client.close();
