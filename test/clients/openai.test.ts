/** The unmodified `openai` package. */
import OpenAI from "openai";
import { zodResponseFormat } from "openai/helpers/zod";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { startHarness } from "../capture/support.ts";
import { add, ADD_PARAMETERS, adder, FOX, shippedModel, type Address } from "./support.ts";

const client = ({ baseURL, apiKey }: Address): OpenAI => new OpenAI({ baseURL, apiKey, maxRetries: 0 });
const messages = [{ role: "user" as const, content: "1 + 2?" }];
const runnable = {
  type: "function" as const,
  function: {
    name: "add",
    description: "adds",
    parameters: ADD_PARAMETERS as unknown as Record<string, unknown>,
    parse: (text: string) => JSON.parse(text) as { a: number; b: number },
    function: add,
  },
};

describe("openai", () => {
  it("plain and streaming requests return the same text", async () => {
    const address = await adder();
    const { completions } = client(address).chat;
    const plain = await completions.create({ model: address.model, messages, n: 2, logprobs: true });
    expect(plain.choices.map((choice) => choice.message.content)).toEqual([FOX, FOX]);
    expect(plain.usage!.total_tokens).toBe(plain.usage!.prompt_tokens + plain.usage!.completion_tokens);
    let text = "";
    const stream = await completions.create({ model: address.model, messages, stream: true, stream_options: { include_usage: true } });
    for await (const chunk of stream) text += chunk.choices[0]?.delta.content ?? "";
    expect(text).toBe(FOX);
    const events: string[] = [];
    const helper = completions.stream({ model: address.model, messages }).on("content", (delta) => events.push(delta));
    expect((await helper.finalMessage()).content).toBe(FOX);
    expect(events.join("")).toBe(FOX);
  });
  it("the tool runner calls the tool and ends with the final answer, plain and streaming", async () => {
    const address = await adder();
    const { completions } = client(address).chat;
    const plain = completions.runTools({ model: address.model, messages, tools: [runnable] });
    expect(await plain.finalContent()).toBe("it is 3");
    expect(plain.messages.map((message) => message.role)).toEqual(["user", "assistant", "tool", "assistant"]);
    const streamed = completions.runTools({ model: address.model, messages, tools: [runnable], stream: true });
    expect(await streamed.finalContent()).toBe("it is 3");
    expect((await streamed.finalFunctionToolCallResult()) ?? null).toBe("3");
  });
  it("lists models, and throws its own error classes", async () => {
    const address = await adder();
    const { data } = await client(address).models.list();
    expect(data.map((model) => model.object)).toContain("model");
    for (const model of data) expect(await client(address).models.retrieve(model.id)).toEqual(model);
    const ask = (more: object): Promise<unknown> => client(address).chat.completions.create({ model: address.model, messages, ...more });
    await expect(ask({ model: "no/such/model" })).rejects.toBeInstanceOf(OpenAI.NotFoundError);
    await expect(ask({ temperature: -1 })).rejects.toMatchObject({ status: 400, param: "temperature", type: "BadRequestError" });
    await expect(client({ ...address, apiKey: "another" }).models.list()).rejects.toBeInstanceOf(OpenAI.AuthenticationError);
  });
  it("leaving a stream aborts the request", async () => {
    let isEnded = false;
    const { address, policy } = await startHarness(
      () => FOX,
      async ({ verb, detail }, { signal }) => {
        if (verb !== "sampleToken" || detail !== 3) return;
        await new Promise((resolve) => signal!.addEventListener("abort", resolve, { once: true }));
        isEnded = true;
      },
    );
    const stream = await client({ ...address, model: policy.id }).chat.completions.create({ model: policy.id, messages, stream: true });
    for await (const _ of stream) break;
    await expect.poll(() => isEnded).toBe(true);
  });
});

describe("openai with structured output", async () => {
  const address = await shippedModel();
  it("parses an answer constrained to a schema", async () => {
    const Person = z.object({ name: z.string().max(6), isOld: z.boolean() });
    const completion = await client(address).chat.completions.parse({
      model: address.model,
      messages,
      seed: 3,
      max_completion_tokens: 300,
      frequency_penalty: 2,
      response_format: zodResponseFormat(Person, "person"),
    });
    const [choice] = completion.choices;
    expect(choice!.finish_reason).toBe("stop");
    expect(Person.safeParse(choice!.message.parsed).success).toBe(true);
  });
});
