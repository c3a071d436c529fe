import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { InMemoryTransport } from "@modelcontextprotocol/sdk/inMemory.js";
import { McpServer } from "@modelcontextprotocol/sdk/server/mcp.js";
import { expect, it, onTestFinished } from "vitest";
import { z } from "zod";
import { generateScenarios, type ScenarioClient } from "../../src/library/scenarios/index.ts";
import { createScriptedPolicy, type ScriptedPolicy } from "../../src/testing/index.ts";

async function connected(server: McpServer): Promise<Client> {
  const [ours, theirs] = InMemoryTransport.createLinkedPair();
  const client = new Client({ name: "test", version: "1.0.0" });
  await Promise.all([server.connect(theirs), client.connect(ours)]);
  onTestFinished(() => client.close());
  return client;
}

function library(): McpServer {
  const server = new McpServer({ name: "library", version: "1.0.0" });
  server.registerTool("find", { description: "Finds a book.", inputSchema: { title: z.string() } }, () => ({ content: [] }));
  return server;
}

const writer = () => createScriptedPolicy(() => ({ text: '{"scenarios": [{"task": "Find Dune.", "difficulty": 1, "tools": ["find"]}]}' }));
const promptOf = ({ requests }: ScriptedPolicy) => requests[0]?.messages.at(-1)?.content as string;

it("generates scenarios from the tools and resources of a connected server", async () => {
  const server = library();
  server.registerResource("catalog", "books://catalog", { description: "All titles", mimeType: "text/csv" }, () => ({ contents: [] }));
  const model = writer();
  const { scenarios } = await generateScenarios({ client: await connected(server), model, count: 1 });
  expect(scenarios).toMatchObject([{ task: "Find Dune.", tools: ["find"] }]);
  const shown = promptOf(model)
    .split("\n")
    .filter((line) => line.startsWith("{"));
  expect(shown.map((line) => JSON.parse(line) as unknown)).toEqual([
    {
      name: "find",
      description: "Finds a book.",
      parameters: expect.objectContaining({ type: "object", properties: { title: { type: "string" } } }) as unknown,
    },
    { uri: "books://catalog", name: "catalog", description: "All titles", mimeType: "text/csv" },
  ]);
});

it("does not ask a server without resources for its list", async () => {
  const model = writer();
  await expect(generateScenarios({ client: await connected(library()), model, count: 1 })).resolves.toMatchObject({ requests: 1 });
  expect(promptOf(model)).not.toContain("resources");
});

it("reads all pages of tools and resources, and takes the option `resources` in place of the server's", async () => {
  const client: ScenarioClient = {
    listTools: async ({ cursor } = {}) => ({
      tools: [{ name: cursor === undefined ? "find" : "lend", inputSchema: { type: "object" as const } }],
      nextCursor: cursor === undefined ? "2" : undefined,
    }),
    listResources: async ({ cursor } = {}) => ({
      resources: [{ uri: `page://${cursor ?? "1"}` }],
      nextCursor: cursor === undefined ? "2" : undefined,
    }),
  };
  const [all, own] = [writer(), writer()];
  await generateScenarios({ client, model: all, count: 1 });
  for (const text of ['"lend"', "page://1", "page://2"]) expect(promptOf(all)).toContain(text);
  await generateScenarios({ client, model: own, count: 1, resources: [{ uri: "own://1" }] });
  expect(promptOf(own)).toContain("own://1");
  expect(promptOf(own)).not.toContain("page://1");
});

it("rejects a server without tools, and a list that never ends", async () => {
  const empty = { listTools: async () => ({ tools: [] }) };
  await expect(generateScenarios({ client: empty, model: writer(), count: 1 })).rejects.toMatchObject({
    code: "E_ARGUMENT",
    param: "client",
  });
  const endless = { ...empty, listTools: async () => ({ tools: [], nextCursor: "again" }) };
  await expect(generateScenarios({ client: endless, model: writer(), count: 1 })).rejects.toMatchObject({ code: "E_CONFIG" });
});
