/** Unmodified LangChain.js with `@langchain/openai`. */
import { HumanMessage, ToolMessage, type AIMessage, type BaseMessage } from "@langchain/core/messages";
import { tool } from "@langchain/core/tools";
import { ChatOpenAI } from "@langchain/openai";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { add, adder, FOX, shippedModel, type Address } from "./support.ts";

const chat = ({ baseURL, apiKey, model }: Address, more: object = {}): ChatOpenAI =>
  new ChatOpenAI({ model, apiKey, maxRetries: 0, configuration: { baseURL }, ...more });
const adding = tool((numbers: { a: number; b: number }) => add(numbers), {
  name: "add",
  description: "adds",
  schema: z.object({ a: z.number(), b: z.number() }),
});

describe("LangChain.js", () => {
  it("invoke, stream and batch return the same text", async () => {
    const model = chat(await adder());
    const plain = await model.invoke("hello");
    expect(plain.text).toBe(FOX);
    expect(plain.usage_metadata).toMatchObject({ output_tokens: expect.any(Number) });
    let text = "";
    for await (const chunk of await model.stream("hello")) text += chunk.text;
    expect(text).toBe(FOX);
    expect((await model.batch(["hello", "again"])).map((answer) => answer.text)).toEqual([FOX, FOX]);
  });
  it("runs a tool call to the final answer", async () => {
    const model = chat(await adder()).bindTools([adding]);
    const messages: BaseMessage[] = [new HumanMessage("1 + 2?")];
    const first: AIMessage = await model.invoke(messages);
    expect(first.tool_calls).toMatchObject([{ name: "add", args: { a: 1, b: 2 } }]);
    messages.push(first);
    for (const call of first.tool_calls!)
      messages.push(new ToolMessage({ tool_call_id: call.id!, content: String(await adding.invoke(call.args as never)) }));
    expect((await model.invoke(messages)).text).toBe("it is 3");
  });
  it("throws our error with its status", async () => {
    const address = await adder();
    await expect(chat({ ...address, model: "no/such/model" }).invoke("hi")).rejects.toMatchObject({ status: 404 });
  });
});

describe("LangChain.js with structured output", async () => {
  const address = await shippedModel();
  const schema = z.object({ name: z.string().max(6), isOld: z.boolean() });
  it.each(["jsonSchema", "functionCalling"] as const)("returns an object by %s", async (method) => {
    const model = chat(address, { frequencyPenalty: 2, modelKwargs: { seed: 3 } }).withStructuredOutput(schema, { method, name: "person" });
    expect(schema.safeParse(await model.invoke("somebody")).success).toBe(true);
  });
});
