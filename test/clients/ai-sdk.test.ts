/** The unmodified AI SDK with its provider for compatible servers. */
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { APICallError, generateObject, generateText, jsonSchema, stepCountIs, streamText, tool } from "ai";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { startChatServer } from "../service/chat/support.ts";
import { add, ADD_PARAMETERS, adder, FOX, shippedModel, type Address } from "./support.ts";

const provider = ({ baseURL, apiKey }: Omit<Address, "model">) =>
  createOpenAICompatible({ name: "whetstone", baseURL, apiKey, includeUsage: true, supportsStructuredOutputs: true });
const tools = {
  add: tool({
    description: "adds",
    inputSchema: jsonSchema<{ a: number; b: number }>(ADD_PARAMETERS as never),
    execute: (numbers) => Promise.resolve(add(numbers)),
  }),
};

describe("the AI SDK", () => {
  it("generateText and streamText return the same text and token counts", async () => {
    const address = await adder();
    const options = { model: provider(address)(address.model), prompt: "hello" };
    const plain = await generateText(options);
    expect([plain.text, plain.finishReason]).toEqual([FOX, "stop"]);
    const streamed = streamText(options);
    let text = "";
    for await (const delta of streamed.textStream) text += delta;
    expect(text).toBe(FOX);
    expect((await streamed.usage).outputTokens).toBe(plain.usage.outputTokens);
  });
  it("runs tool calls to the final answer, plain and streaming", async () => {
    const address = await adder();
    const options = { model: provider(address)(address.model), prompt: "1 + 2?", tools, stopWhen: stepCountIs(3) };
    const plain = await generateText(options);
    expect([plain.text, plain.steps.length]).toEqual(["it is 3", 2]);
    expect(plain.steps[0]!.toolResults.map((result) => result.output)).toEqual(["3"]);
    const streamed = streamText(options);
    await streamed.consumeStream();
    expect([await streamed.text, (await streamed.steps).length]).toEqual(["it is 3", 2]);
  });
  it("separates reasoning from text if the service does", async () => {
    const server = await startChatServer({ says: "let me see</think>four", limits: { reasoningParser: "think" } });
    try {
      const model = provider({ baseURL: `${server.url}/v1`, apiKey: "key" })("demo/chat/reverse");
      const plain = await generateText({ model, prompt: "2 + 2?" });
      expect([plain.reasoningText, plain.text]).toEqual(["let me see", "four"]);
      const streamed = streamText({ model, prompt: "2 + 2?" });
      expect([await streamed.reasoningText, await streamed.text]).toEqual(["let me see", "four"]);
    } finally {
      await server.close();
    }
  });
  it("throws its own error with our status", async () => {
    const address = await adder();
    const asked = generateText({ model: provider(address)("no/such/model"), prompt: "hi", maxRetries: 0 });
    await expect(asked).rejects.toSatisfy((error: unknown) => APICallError.isInstance(error) && error.statusCode === 404);
  });
});

describe("the AI SDK with structured output", async () => {
  const address = await shippedModel();
  it("generateObject returns an object that matches its schema", async () => {
    const schema = z.object({ name: z.string().max(6), isOld: z.boolean() });
    const { object } = await generateObject({
      model: provider(address)(address.model),
      schema,
      prompt: "somebody",
      seed: 3,
      frequencyPenalty: 2,
      maxRetries: 0,
    });
    expect(schema.safeParse(object).success).toBe(true);
  });
});
