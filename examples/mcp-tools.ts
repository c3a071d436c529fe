/**
 * Tools of an MCP server for an agent. The server runs in the same process here; a client of a remote server is used the same way.
 *
 *   node --conditions=whetstone/source --import tsx examples/mcp-tools.ts
 *
 * Prints the tools and the conversation. Starts the embedded service.
 */
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { InMemoryTransport } from "@modelcontextprotocol/sdk/inMemory.js";
import { McpServer } from "@modelcontextprotocol/sdk/server/mcp.js";
import { connect, trajectory } from "whetstone";
import { mcpTools, runAgent } from "whetstone/agent";
import { z } from "zod";

const server = new McpServer({ name: "library", version: "1.0.0" });
server.registerTool("find", { description: "Finds a book's shelf.", inputSchema: { name: z.string() } }, ({ name }) => ({
  content: [{ type: "text", text: name === "kat" ? "12" : "none" }],
}));
server.registerTool("open", { description: "Opens a book.", inputSchema: { name: z.string() } }, () => {
  throw new Error("locked");
});

const [ours, theirs] = InMemoryTransport.createLinkedPair();
const client = new Client({ name: "example", version: "1.0.0" });
await Promise.all([server.connect(theirs), client.connect(ours)]);

const tools = await mcpTools(client); // reads all pages of the server's list
console.log(tools.map((tool) => tool.function.name));

const service = await connect();
const model = await service.models.create({ project: "demo", name: "mcp", baseModel: "whetstone-tiny", returnExisting: true });
const policy = await model.policy(0);

const t = trajectory({ messages: [{ role: "user", content: "Use find with name kat" }], tools });
const run = await runAgent(t, policy, { maxTurns: 3, maxCompletionTokens: 48, temperature: 0 });
for (const { role, content, tool_calls: calls } of t.messages())
  console.log(role.padEnd(9), content, calls?.map((call) => call.function) ?? "");
console.log(run);

await client.close();
await service.close();
