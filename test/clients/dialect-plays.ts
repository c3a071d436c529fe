/** Agents of unmodified packages on the Responses and Messages APIs: two questions, each with a tool call. */
import Anthropic from "@anthropic-ai/sdk";
import { betaTool } from "@anthropic-ai/sdk/helpers/beta/json-schema";
import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import { Agent, OpenAIResponsesModel, Runner, setTracingDisabled, tool as agentsTool, type AgentInputItem } from "@openai/agents";
import { generateText, jsonSchema, stepCountIs, streamText, tool, type LanguageModel, type ModelMessage } from "ai";
import OpenAI from "openai";
import { expect } from "vitest";
import { z } from "zod";
import { ADD_SCHEMA, QUESTIONS, type Harness } from "../capture/support.ts";
import { add } from "./support.ts";

/** Harness, and the `fetch` of the client. */
export type Place = Pick<Harness, "address" | "policy"> & { readonly fetch?: typeof globalThis.fetch };

/** Runs the conversation and returns the agent's answers. */
export type Play = (place: Place, isStreaming: boolean) => Promise<string[]>;

/** Options of a client. */
const optionsOf = ({ address, fetch = globalThis.fetch }: Place) => ({ ...address, fetch });

const tools = {
  add: tool({
    description: "adds",
    inputSchema: jsonSchema<{ a: number; b: number }>(ADD_SCHEMA as never),
    execute: (numbers) => Promise.resolve(add(numbers)),
  }),
};

/** The AI SDK's tool loop with a provider. */
const aiSdk =
  (provider: (place: Place) => LanguageModel): Play =>
  async (place, isStreaming) => {
    const messages: ModelMessage[] = [];
    const answers: string[] = [];
    for (const content of QUESTIONS) {
      messages.push({ role: "user", content });
      const options = { model: provider(place), messages, tools, stopWhen: stepCountIs(3), maxRetries: 0, maxOutputTokens: 200 };
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

const openaiAgents: Play = async (place, isStreaming) => {
  setTracingDisabled(true);
  const { policy } = place;
  const client = new OpenAI({ ...optionsOf(place), maxRetries: 0 });
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

const anthropicRunner: Play = async (place, isStreaming) => {
  const { policy } = place;
  const { baseURL, ...options } = optionsOf(place);
  const client = new Anthropic({ baseURL: baseURL.replace(/\/v1$/u, ""), ...options, authToken: null, maxRetries: 0 });
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

/** A tool loop around the openai client that sends only new items, and continues stored responses. */
const openaiResponses: Play = async (place, isStreaming) => {
  const { responses } = new OpenAI({ ...optionsOf(place), maxRetries: 0 });
  const parameters = ADD_SCHEMA as unknown as Record<string, unknown>;
  const ask = { model: place.policy.id, tools: [{ type: "function" as const, name: "add", strict: true, parameters }] };
  let previous: string | null = null;
  const next = async (input: OpenAI.Responses.ResponseInput): Promise<OpenAI.Responses.Response> => {
    const body = { ...ask, input, previous_response_id: previous };
    const response = isStreaming ? await responses.stream(body).finalResponse() : await responses.create(body);
    previous = response.id;
    return response;
  };
  const answers: string[] = [];
  for (const content of QUESTIONS) {
    let response = await next([{ role: "user", content }]);
    for (;;) {
      const calls = response.output.filter((item) => item.type === "function_call");
      if (calls.length === 0) break;
      const results = calls.map(({ call_id, arguments: args }) => {
        const output = add(JSON.parse(args) as { a: number; b: number });
        return { type: "function_call_output" as const, call_id, output };
      });
      response = await next(results);
    }
    answers.push(response.output_text);
  }
  return answers;
};

/** Plays by the name of their client. */
export const PLAYS: Readonly<Record<string, Play>> = {
  "openai on the Responses API": openaiResponses,
  "the AI SDK's OpenAI provider": aiSdk((place) => createOpenAI(optionsOf(place)).responses(place.policy.id)),
  "the AI SDK's Anthropic provider": aiSdk((place) => createAnthropic(optionsOf(place))(place.policy.id)),
  "OpenAI Agents": openaiAgents,
  "the tool runner of Anthropic's client": anthropicRunner,
};
