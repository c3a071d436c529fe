import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { InMemoryTransport } from "@modelcontextprotocol/sdk/inMemory.js";
import { Server } from "@modelcontextprotocol/sdk/server/index.js";
import { McpServer } from "@modelcontextprotocol/sdk/server/mcp.js";
import { CallToolRequestSchema, ListToolsRequestSchema } from "@modelcontextprotocol/sdk/types.js";
import { afterEach, expect, it } from "vitest";
import { z } from "zod";
import { mcpTools, runAgent } from "../../../src/library/rollout/agent/index.ts";
import { trajectory } from "../../../src/base/trajectory/index.ts";
import { createScriptedPolicy } from "../../../src/testing/index.ts";

const open: Client[] = [];
afterEach(async () => {
  for (const client of open.splice(0)) await client.close();
});

async function connected(server: McpServer | Server): Promise<Client> {
  const [ours, theirs] = InMemoryTransport.createLinkedPair();
  const client = new Client({ name: "test", version: "1.0.0" });
  await Promise.all([server.connect(theirs), client.connect(ours)]);
  open.push(client);
  return client;
}

function library(): McpServer {
  const server = new McpServer({ name: "library", version: "1.0.0" });
  server.registerTool("find", { description: "Finds a book.", inputSchema: { title: z.string() } }, ({ title }) => ({
    content: [
      { type: "text", text: `Shelf 3: ${title}` },
      { type: "resource", resource: { uri: "book://7", text: "It was night." } },
      { type: "resource_link", uri: "book://8", name: "the sequel" },
      { type: "image", data: "AAAA", mimeType: "image/png" },
    ],
  }));
  server.registerTool("borrow", { description: "Borrows a book." }, () => ({
    content: [{ type: "text", text: "It is lent." }],
    isError: true,
  }));
  server.registerTool("burn", { description: "Never." }, () => {
    throw new Error("not in here");
  });
  return server;
}

const call = { signal: new AbortController().signal, callId: "c" };

it("offers a server's tools with their schemas and returns every part of a result as text", async () => {
  const tools = await mcpTools(await connected(library()));
  expect(tools.map((tool) => tool.function.name)).toEqual(["find", "borrow", "burn"]);
  expect(tools[0]?.function).toMatchObject({
    description: "Finds a book.",
    parameters: { type: "object", properties: { title: { type: "string" } }, required: ["title"] },
  });
  const t = trajectory({ messages: [{ role: "user", content: "Find it." }], tools });
  const run = await runAgent(
    t,
    createScriptedPolicy([
      {
        calls: [
          ["find", '{"title":"Dune"}'],
          ["borrow", "{}"],
          ["burn", ""],
          ["find", "{}"],
        ],
      },
      { text: "Found." },
    ]),
  );
  expect(run).toMatchObject({ stopReason: "answer", toolCalls: 4, toolErrors: 3 });
  const [found, lent, burnt, invalid] = t.messages().filter(({ role }) => role === "tool");
  expect(found?.content).toBe("Shelf 3: Dune\nIt was night.\n[resource_link book://8]\n[image image/png]");
  expect(lent?.content).toBe("Error: It is lent.");
  expect(burnt?.content).toMatch(/^Error: .*not in here/);
  expect(invalid?.content).toMatch(/^Error: .*title/s);
});

it("reads all pages of the tool list, renames tools, and returns structured content as JSON in a result without text", async () => {
  const server = new Server({ name: "pages", version: "1.0.0" }, { capabilities: { tools: {} } });
  const pages = [["a"], [], ["b", "c"]];
  server.setRequestHandler(ListToolsRequestSchema, ({ params }) => {
    const page = Number(params?.cursor ?? 0);
    return {
      tools: pages[page]!.map((name) => ({ name, inputSchema: { type: "object" as const } })),
      ...(page + 1 < pages.length ? { nextCursor: String(page + 1) } : {}),
    };
  });
  server.setRequestHandler(CallToolRequestSchema, ({ params }) => ({ content: [], structuredContent: { asked: params.name } }));
  const tools = await mcpTools(await connected(server), { rename: (name) => `pages_${name}` });
  expect(tools.map((tool) => tool.function.name)).toEqual(["pages_a", "pages_b", "pages_c"]);
  expect(await tools[1]?.call("{}", call)).toEqual({ text: '{"asked":"b"}', isError: false });
  await expect(mcpTools(await connected(library()), { rename: () => "same" })).rejects.toMatchObject({ code: "E_CONFIG" });
});

it("rejects a tool list with a repeated cursor", async () => {
  const server = new Server({ name: "circle", version: "1.0.0" }, { capabilities: { tools: {} } });
  server.setRequestHandler(ListToolsRequestSchema, () => ({ tools: [], nextCursor: "again" }));
  await expect(mcpTools(await connected(server))).rejects.toThrow(/has no end: cursor `again`/);
});

it("passes an abort to the server and rejects with the signal's reason", async () => {
  const server = new McpServer({ name: "slow", version: "1.0.0" });
  const controller = new AbortController();
  let cancelled = (): void => {};
  const wasCancelled = new Promise<void>((resolve) => (cancelled = resolve));
  server.registerTool("wait", {}, async ({ signal }) => {
    signal.addEventListener("abort", () => cancelled());
    controller.abort(new Error("enough"));
    await wasCancelled;
    return { content: [] };
  });
  const [wait] = await mcpTools(await connected(server));
  await expect(wait!.call("{}", { signal: controller.signal, callId: "" })).rejects.toThrow("enough");
  await wasCancelled;
});
