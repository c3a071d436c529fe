/** Agents of unmodified packages on the Responses and Messages APIs: two questions with tool calls, each prompt after the ids of the last. */
import Anthropic from "@anthropic-ai/sdk";
import { betaTool } from "@anthropic-ai/sdk/helpers/beta/json-schema";
import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import { Agent, OpenAIResponsesModel, Runner, setTracingDisabled, tool as agentsTool, type AgentInputItem } from "@openai/agents";
import { generateText, jsonSchema, stepCountIs, streamText, tool, type LanguageModel, type ModelMessage } from "ai";
import OpenAI from "openai";
import { expect, it } from "vitest";
import { z } from "zod";
import { ADD_SCHEMA, ANSWERS, conversation, QUESTIONS, startHarness, type Harness } from "../capture/support.ts";
import { add } from "./support.ts";

/** Runs the conversation and returns the agent's answers. */
type Play = (harness: Harness, isStreaming: boolean) => Promise<string[]>;

const tools = {
  add: tool({
    description: "adds",
    inputSchema: jsonSchema<{ a: number; b: number }>(ADD_SCHEMA as never),
    execute: (numbers) => Promise.resolve(add(numbers)),
  }),
};

/** The AI SDK's tool loop with a provider. */
const aiSdk =
  (provider: (harness: Harness) => LanguageModel): Play =>
  async (harness, isStreaming) => {
    const messages: ModelMessage[] = [];
    const answers: string[] = [];
    for (const content of QUESTIONS) {
      messages.push({ role: "user", content });
      const options = { model: provider(harness), messages, tools, stopWhen: stepCountIs(3), maxRetries: 0, maxOutputTokens: 200 };
      if (isStreaming) {
        const streamed = streamText(options);
        await streamed.consumeStream({ onError: (error) => expect.fail(String(error)) });
        answers.push(await streamed.text);
        messages.push(...(await streamed.response).messages);
      } else {
        const { text, response } = await generateText(options);
        answers.push(text);
        messages.push(...response.messages);
      }
    }
    return answers;
  };

const openaiAgents: Play = async ({ address, policy }, isStreaming) => {
  setTracingDisabled(true);
  const client = new OpenAI({ ...address, maxRetries: 0 });
  const agent = new Agent({
    name: "adder",
    instructions: "You add.",
    model: new OpenAIResponsesModel(client as unknown as ConstructorParameters<typeof OpenAIResponsesModel>[0], policy.id),
    tools: [agentsTool({ name: "add", description: "adds", parameters: z.object({ a: z.number(), b: z.number() }), execute: add })],
  });
  const runner = new Runner();
  let history: AgentInputItem[] = [];
  const answers: string[] = [];
  for (const question of QUESTIONS) {
    const input: AgentInputItem[] = [...history, { role: "user", content: question }];
    const result = isStreaming ? await runner.run(agent, input, { stream: true }) : await runner.run(agent, input);
    if ("completed" in result) {
      for await (const _ of result) void _;
      await result.completed;
    }
    answers.push(String(result.finalOutput));
    history = result.history;
  }
  return answers;
};

const anthropicRunner: Play = async ({ address, policy }, isStreaming) => {
  const client = new Anthropic({ baseURL: address.baseURL.replace(/\/v1$/u, ""), apiKey: address.apiKey, authToken: null, maxRetries: 0 });
  const runnable = betaTool({
    name: "add",
    description: "adds",
    inputSchema: { ...ADD_SCHEMA, required: [...ADD_SCHEMA.required] },
    run: (input) => add(input as { a: number; b: number }),
  });
  let messages: Anthropic.Beta.BetaMessageParam[] = [];
  const answers: string[] = [];
  for (const content of QUESTIONS) {
    messages.push({ role: "user", content });
    const runner = client.beta.messages.toolRunner({ model: policy.id, max_tokens: 200, messages, tools: [runnable], stream: isStreaming });
    const final = await runner.runUntilDone();
    const last = final.content.at(-1)!;
    answers.push(last.type === "text" ? last.text : "");
    messages = [...runner.params.messages];
    if (messages.at(-1)!.role !== "assistant") messages.push({ role: "assistant", content: final.content });
  }
  return answers;
};

const openaiOf = ({ address }: Harness) => createOpenAI(address);
const PLAYS: Readonly<Record<string, Play>> = {
  "the AI SDK's OpenAI provider": aiSdk((harness) => openaiOf(harness).responses(harness.policy.id)),
  "the AI SDK's Anthropic provider": aiSdk((harness) => createAnthropic(harness.address)(harness.policy.id)),
  "OpenAI Agents": openaiAgents,
  "the tool runner of Anthropic's client": anthropicRunner,
};

it.each(Object.keys(PLAYS).flatMap((name) => [true, false].map((isStreaming) => [name, isStreaming] as const)))(
  "%s runs tools and keeps the sampled ids, streaming: %s",
  async (name, isStreaming) => {
    const harness = await startHarness(conversation);
    expect(await PLAYS[name]!(harness, isStreaming)).toEqual(ANSWERS);
    expect(harness.sampled).toHaveLength(4);
    for (const [index, { prompt, ids }] of harness.sampled.slice(0, -1).entries()) {
      const next = harness.sampled[index + 1]!;
      expect(next.prompt.slice(0, prompt.length + ids.length), `turn ${index + 1}`).toEqual([...prompt, ...ids]);
    }
  },
);
