/** The unmodified `@anthropic-ai/sdk` package. */
import Anthropic from "@anthropic-ai/sdk";
import { betaTool } from "@anthropic-ai/sdk/helpers/beta/json-schema";
import { describe, expect, it } from "vitest";
import { add, ADD_PARAMETERS, adder, FOX, shippedModel, type Address } from "./support.ts";

const client = ({ baseURL, apiKey }: Address): Anthropic =>
  new Anthropic({ baseURL: baseURL.replace(/\/v1$/u, ""), apiKey, authToken: null, maxRetries: 0 });
const messages = [{ role: "user" as const, content: "1 + 2?" }];
const tool = {
  name: "add",
  description: "adds",
  input_schema: { ...ADD_PARAMETERS, required: [...ADD_PARAMETERS.required] },
};

describe("@anthropic-ai/sdk", () => {
  it("plain and streaming requests return the same message", async () => {
    const address = await adder();
    const ask = { model: address.model, max_tokens: 100, messages, system: [{ type: "text" as const, text: "be brief" }] };
    const plain = await client(address).messages.create(ask);
    expect(plain).toMatchObject({ type: "message", role: "assistant", stop_reason: "end_turn", content: [{ type: "text", text: FOX }] });
    const stream = client(address).messages.stream(ask);
    const types: string[] = [];
    for await (const event of stream) types.push(event.type);
    expect(types.slice(0, 2)).toEqual(["message_start", "content_block_start"]);
    expect(types.slice(-3)).toEqual(["content_block_stop", "message_delta", "message_stop"]);
    const { id: _, ...final } = await stream.finalMessage();
    const { id: __, ...whole } = plain;
    expect(final).toMatchObject(whole);
    const { input_tokens } = await client(address).messages.countTokens({ model: ask.model, messages, system: ask.system });
    expect(input_tokens).toBe(plain.usage.input_tokens);
  });
  it("the tool runner calls the tool and ends with the final answer, plain and streaming", async () => {
    const address = await adder();
    const runnable = betaTool({
      name: "add",
      description: "adds",
      inputSchema: tool.input_schema,
      run: (input) => add(input as { a: number; b: number }),
    });
    const ask = { model: address.model, max_tokens: 100, messages, tools: [runnable] };
    const plain = await client(address).beta.messages.toolRunner(ask);
    expect(plain.content).toMatchObject([{ type: "text", text: "it is 3" }]);
    const streamed = client(address).beta.messages.toolRunner({ ...ask, stream: true });
    const finals: unknown[] = [];
    for await (const stream of streamed) finals.push((await stream.finalMessage()).content);
    expect(finals).toMatchObject([
      [
        { type: "text", text: "Let me see. " },
        { type: "tool_use", name: "add", input: { a: 1, b: 2 } },
      ],
      [{ type: "text", text: "it is 3" }],
    ]);
  });
  it("authenticates with a bearer token, and throws its own error classes", async () => {
    const address = await adder();
    const bearer = new Anthropic({
      baseURL: address.baseURL.replace(/\/v1$/u, ""),
      apiKey: null,
      authToken: address.apiKey,
      maxRetries: 0,
    });
    const ask = { model: address.model, max_tokens: 100, messages };
    expect((await bearer.messages.create(ask)).stop_reason).toBe("end_turn");
    const create = (more: object): Promise<unknown> => client(address).messages.create({ ...ask, ...more });
    await expect(create({ model: "no/such/model" })).rejects.toBeInstanceOf(Anthropic.NotFoundError);
    await expect(create({ temperature: -1 })).rejects.toMatchObject({
      status: 400,
      error: { type: "error", error: { type: "invalid_request_error", param: "temperature" } },
    });
    const image = { type: "image", source: { type: "base64", media_type: "image/png", data: "" } };
    await expect(create({ messages: [{ role: "user", content: [image] }] })).rejects.toThrow(/messages\.0\.content\.0\.type.*image/u);
    const tools = [{ type: "web_search_20250305", name: "web_search" }];
    await expect(create({ tools })).resolves.toMatchObject({ stop_reason: "end_turn" });
    await expect(create({ tools, tool_choice: { type: "tool", name: "web_search" } })).rejects.toThrow(/tool_choice\.name.*web_search/u);
    await expect(client({ ...address, apiKey: "another" }).messages.create(ask)).rejects.toBeInstanceOf(Anthropic.AuthenticationError);
  });
});

describe("@anthropic-ai/sdk with the shipped model", async () => {
  const address = await shippedModel();
  it("stops at a stop sequence, and holds the text to a schema", async () => {
    const ask = { model: address.model, max_tokens: 200, messages, seed: 3 };
    const whole = await client(address).messages.create({ ...ask, ...{ ignore_eos: true, max_tokens: 40 } });
    const [{ text }] = whole.content as [Anthropic.TextBlock];
    const stop = text.slice(3, 6);
    const cut = await client(address).messages.create({ ...ask, ...{ ignore_eos: true }, stop_sequences: [stop] });
    expect(cut).toMatchObject({ stop_reason: "stop_sequence", stop_sequence: stop });
    const schema = { type: "object", properties: { isOld: { type: "boolean" } }, required: ["isOld"], additionalProperties: false };
    const formed = await client(address).messages.create({ ...ask, output_config: { format: { type: "json_schema", schema } } });
    expect(JSON.parse((formed.content[0] as Anthropic.TextBlock).text)).toEqual({ isOld: expect.any(Boolean) });
  });
});
