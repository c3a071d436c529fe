/** The same conversation through every client: two questions, each with a tool call, streaming and not. */
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { HumanMessage, ToolMessage, type AIMessage, type BaseMessage } from "@langchain/core/messages";
import { tool as langchainTool } from "@langchain/core/tools";
import { ChatOpenAI } from "@langchain/openai";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { InMemoryTransport } from "@modelcontextprotocol/sdk/inMemory.js";
import { McpServer } from "@modelcontextprotocol/sdk/server/mcp.js";
import { Agent, OpenAIChatCompletionsModel, Runner, setTracingDisabled, tool as agentsTool, type AgentInputItem } from "@openai/agents";
import { generateText, jsonSchema, stepCountIs, streamText, tool as aiTool, type ModelMessage } from "ai";
import OpenAI from "openai";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { capture } from "../../src/library/capture/index.ts";
import { ADD_SCHEMA, ANSWERS, conversation, expectOneRow, QUESTIONS, startHarness, type Harness } from "./support.ts";

/** Runs the conversation and returns the agent's answers. */
type Play = (harness: Harness, isStreaming: boolean) => Promise<string[]>;

const add = (a: number, b: number): string => String(a + b);
const asNumbers = (text: string): { a: number; b: number } => JSON.parse(text);

const OPENAI_TOOLS: OpenAI.ChatCompletionFunctionTool[] = [{ type: "function", function: { name: "add", parameters: ADD_SCHEMA } }];

/** A typical tool loop around the openai client. */
async function openaiLoop(
  { policy, address }: Harness,
  isStreaming: boolean,
  run: (name: string, args: string) => string | Promise<string> = (_, args) => add(asNumbers(args).a, asNumbers(args).b),
  tools = OPENAI_TOOLS,
): Promise<string[]> {
  const client = new OpenAI({ ...address, fetch: capture.fetch });
  const messages: OpenAI.ChatCompletionMessageParam[] = [{ role: "system", content: "You add." }];
  const answers: string[] = [];
  for (const question of QUESTIONS) {
    messages.push({ role: "user", content: question });
    for (let turn = 0; turn < 4; turn++) {
      const body = { model: policy.id, messages, tools };
      const completion = isStreaming
        ? await client.chat.completions.stream(body).finalChatCompletion()
        : await client.chat.completions.create(body);
      const { message } = completion.choices[0]!;
      messages.push(message);
      for (const call of message.tool_calls ?? []) {
        if (call.type !== "function") throw new Error("Expected a function call");
        messages.push({ role: "tool", tool_call_id: call.id, content: await run(call.function.name, call.function.arguments) });
      }
      if (!message.tool_calls?.length) {
        answers.push(message.content ?? "");
        break;
      }
    }
  }
  return answers;
}

const openai: Play = (harness, isStreaming) => openaiLoop(harness, isStreaming);

const aiSdk: Play = async ({ policy, address }, isStreaming) => {
  const provider = createOpenAICompatible({ name: "whetstone", ...address, fetch: capture.fetch });
  const tools = {
    add: aiTool({ inputSchema: jsonSchema<{ a: number; b: number }>(ADD_SCHEMA), execute: ({ a, b }) => Promise.resolve(add(a, b)) }),
  };
  const messages: ModelMessage[] = [];
  const answers: string[] = [];
  for (const question of QUESTIONS) {
    messages.push({ role: "user", content: question });
    const options = { model: provider(policy.id), system: "You add.", tools, messages, stopWhen: stepCountIs(4) };
    if (isStreaming) {
      const result = streamText(options);
      let text = "";
      for await (const part of result.fullStream) {
        if (part.type === "text-delta") text += part.text;
        if (part.type === "tool-result") text = "";
        if (part.type === "error") throw part.error;
      }
      answers.push(text);
      messages.push(...(await result.response).messages);
    } else {
      const result = await generateText(options);
      answers.push(result.text);
      messages.push(...result.response.messages);
    }
  }
  return answers;
};

const langchain: Play = async ({ policy, address }, isStreaming) => {
  const { baseURL, apiKey } = address;
  const adder = langchainTool(({ a, b }: { a: number; b: number }) => add(a, b), {
    name: "add",
    description: "adds",
    schema: z.object({ a: z.number(), b: z.number() }),
  });
  const model = new ChatOpenAI({ model: policy.id, apiKey, configuration: { baseURL, fetch: capture.fetch } }).bindTools([adder]);
  const messages: BaseMessage[] = [];
  const answers: string[] = [];
  const ask = async (): Promise<AIMessage> => {
    if (!isStreaming) return model.invoke(messages);
    let whole: Awaited<ReturnType<typeof model.invoke>> | undefined;
    for await (const chunk of await model.stream(messages)) whole = whole === undefined ? chunk : whole.concat(chunk);
    if (whole === undefined) throw new Error("The stream was empty");
    return whole;
  };
  for (const question of QUESTIONS) {
    messages.push(new HumanMessage(question));
    for (let turn = 0; turn < 4; turn++) {
      const message = await ask();
      messages.push(message);
      for (const { id, args } of message.tool_calls ?? []) {
        messages.push(new ToolMessage({ tool_call_id: id ?? "", content: add(args["a"], args["b"]) }));
      }
      if (!message.tool_calls?.length) {
        answers.push(message.text);
        break;
      }
    }
  }
  return answers;
};

const openaiAgents: Play = async ({ policy, address }, isStreaming) => {
  setTracingDisabled(true);
  const client = new OpenAI({ ...address, fetch: capture.fetch });
  const agent = new Agent({
    name: "adder",
    instructions: "You add.",
    // The package depends on a newer openai; the clients are compatible.
    model: new OpenAIChatCompletionsModel(client as unknown as ConstructorParameters<typeof OpenAIChatCompletionsModel>[0], policy.id),
    tools: [
      agentsTool({
        name: "add",
        description: "adds",
        parameters: z.object({ a: z.number(), b: z.number() }),
        execute: ({ a, b }) => add(a, b),
      }),
    ],
  });
  const runner = new Runner();
  let history: AgentInputItem[] = [];
  const answers: string[] = [];
  for (const question of QUESTIONS) {
    const input: AgentInputItem[] = [...history, { role: "user", content: question }];
    if (isStreaming) {
      const result = await runner.run(agent, input, { stream: true });
      for await (const _ of result) void _;
      await result.completed;
      answers.push(String(result.finalOutput));
      history = result.history;
    } else {
      const result = await runner.run(agent, input);
      answers.push(String(result.finalOutput));
      history = result.history;
    }
  }
  return answers;
};

/** Tools from an MCP server: the model is offered the server's list. */
const mcp: Play = async (harness, isStreaming) => {
  const server = new McpServer({ name: "adder", version: "1.0.0" });
  server.registerTool("add", { description: "adds", inputSchema: { a: z.number(), b: z.number() } }, ({ a, b }) => ({
    content: [{ type: "text", text: add(a, b) }],
  }));
  const [here, there] = InMemoryTransport.createLinkedPair();
  const client = new Client({ name: "agent", version: "1.0.0" });
  await Promise.all([server.connect(there), client.connect(here)]);
  const { tools } = await client.listTools();
  const run = async (name: string, args: string): Promise<string> => {
    const { content } = await client.callTool({ name, arguments: asNumbers(args) });
    return (content as { readonly text: string }[])[0]!.text;
  };
  const offered = tools.map(({ name, description, inputSchema }) => ({
    type: "function" as const,
    function: { name, description: description ?? "", parameters: inputSchema },
  }));
  try {
    return await openaiLoop(harness, isStreaming, run, offered);
  } finally {
    await client.close();
  }
};

describe.each<[string, Play]>([
  ["openai", openai],
  ["the AI SDK", aiSdk],
  ["LangChain.js", langchain],
  ["OpenAI Agents", openaiAgents],
  ["an agent with MCP tools", mcp],
])("%s", (_, play) => {
  it.each([
    ["not streaming", false],
    ["streaming", true],
  ])("%s: every sampled token is in one row and no turn has drifted", async (__, isStreaming) => {
    const harness = await startHarness(conversation);
    let answers: string[] = [];
    const recorded = await capture.trajectory(
      async () => {
        answers = await play(harness, isStreaming);
        return { reward: 1, metrics: { right: true }, metadata: { task: "add" } };
      },
      { policy: harness.policy },
    );
    expect(answers).toEqual(ANSWERS);
    expect(harness.sampled).toHaveLength(4);
    expectOneRow(recorded, harness);
    expect(recorded).toMatchObject({ reward: 1, metrics: { right: true }, metadata: { task: "add" }, lastText: "twice is 6" });
    expect(recorded.tools.map((tool) => tool.function.name)).toEqual(["add"]);
    const roles = recorded.messages().map((message) => message.role);
    expect(roles.filter((role) => role !== "system")).toEqual([
      "user",
      "assistant",
      "tool",
      "assistant",
      "user",
      "assistant",
      "tool",
      "assistant",
    ]);
    expect(recorded.choices.map((choice) => choice.finish_reason)).toEqual(["tool_calls", "stop", "tool_calls", "stop"]);
    expect(JSON.stringify(recorded)).not.toContain(harness.address.apiKey);
  });
});
