/** The unmodified `openai` package on the Responses API. */
import OpenAI from "openai";
import { zodTextFormat } from "openai/helpers/zod";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { ADD_PARAMETERS, adder, FOX, shippedModel, type Address } from "./support.ts";

const client = ({ baseURL, apiKey }: Address): OpenAI => new OpenAI({ baseURL, apiKey, maxRetries: 0 });
const tool = {
  type: "function" as const,
  name: "add",
  description: "adds",
  strict: true,
  parameters: ADD_PARAMETERS as unknown as Record<string, unknown>,
};
/** Returns a response without identifiers and times. */
const stable = (response: object): unknown =>
  JSON.parse(JSON.stringify(response, (key, value: unknown) => (["id", "created_at", "call_id"].includes(key) ? undefined : value)));

describe("openai responses", () => {
  it("plain and streaming requests return the same response", async () => {
    const address = await adder();
    const { responses } = client(address);
    const ask = { model: address.model, input: "hello", instructions: "be brief", metadata: { run: "1" } };
    const plain = await responses.create(ask);
    expect(plain).toMatchObject({ status: "completed", output_text: FOX, metadata: { run: "1" } });
    const stream = responses.stream(ask);
    const types: string[] = [];
    let text = "";
    for await (const event of stream) {
      types.push(event.type);
      if (event.type === "response.output_text.delta") text += event.delta;
    }
    expect(text).toBe(FOX);
    expect(types.slice(0, 4)).toEqual([
      "response.created",
      "response.in_progress",
      "response.output_item.added",
      "response.content_part.added",
    ]);
    expect(types.slice(-3)).toEqual(["response.content_part.done", "response.output_item.done", "response.completed"]);
    expect(stable(await stream.finalResponse())).toMatchObject(stable(plain) as object);
  });
  it("continues stored responses with the results of tools, which can be fetched and deleted", async () => {
    const address = await adder();
    const { responses } = client(address);
    const ask = { model: address.model, tools: [tool], stream: true as const };
    let last: OpenAI.Responses.Response | null = null;
    for await (const event of await responses.create({ ...ask, input: "1 + 2?" }))
      if (event.type === "response.completed") last = event.response;
    expect(last!.output.map(({ type }) => type)).toEqual(["message", "function_call"]);
    const call = last!.output[1] as OpenAI.Responses.ResponseFunctionToolCall;
    expect([call.name, JSON.parse(call.arguments)]).toEqual(["add", { a: 1, b: 2 }]);
    const output = { type: "function_call_output" as const, call_id: call.call_id, output: "3" };
    const next = await responses.create({ ...ask, stream: false, previous_response_id: last!.id, input: [output] });
    expect(next.output_text).toBe("it is 3");
    const references = [...last!.output.map(({ id }) => ({ type: "item_reference" as const, id: id! })), output];
    const question = { type: "message" as const, role: "user" as const, content: "1 + 2?" };
    const referring = await responses.create({ ...ask, stream: false, input: [question, ...references] });
    expect(referring.usage!.input_tokens).toBe(next.usage!.input_tokens);
    expect((await responses.retrieve(next.id)).output).toEqual(next.output);
    expect(next.usage!.input_tokens_details).toEqual({ cached_tokens: 0, cache_write_tokens: 0 });
    const listed = async () => {
      const items: OpenAI.Responses.ResponseItem[] = [];
      for await (const item of responses.inputItems.list(next.id, { limit: 2, order: "asc" })) items.push(item);
      return items;
    };
    const items = await listed();
    expect(items.map(({ type }) => type)).toEqual(["message", "message", "function_call", "function_call_output"]);
    expect(items[0]).toMatchObject({ role: "user", content: [{ type: "input_text", text: "1 + 2?" }] });
    expect((await responses.inputItems.list(next.id)).data).toEqual(items.toReversed());
    const third = await responses.create({ ...ask, stream: false, previous_response_id: next.id, input: "and?" });
    await responses.delete(last!.id);
    await expect(responses.retrieve(last!.id)).rejects.toBeInstanceOf(OpenAI.NotFoundError);
    await expect(responses.create({ ...ask, stream: false, previous_response_id: last!.id, input: "and?" })).rejects.toMatchObject({
      status: 404,
      param: "previous_response_id",
    });
    // The items of the deleted response remain in the responses that continue it.
    expect(await listed()).toEqual(items);
    const fourth = await responses.create({ ...ask, stream: false, previous_response_id: next.id, input: "and?" });
    expect(fourth.usage!.input_tokens).toBe(third.usage!.input_tokens);
    const kept = await responses.create({ ...ask, stream: false, input: "hello", store: false });
    await expect(responses.retrieve(kept.id)).rejects.toBeInstanceOf(OpenAI.NotFoundError);
  });
  it("lists hosted tools as they were sent, and answers without them", async () => {
    const address = await adder();
    const tools = [
      { type: "web_search", search_context_size: "low" },
      { type: "mcp", server_label: "a", server_url: "https://example.com" },
    ] as const;
    const response = await client(address).responses.create({ model: address.model, input: "hello", tools: [...tools], store: false });
    expect(response).toMatchObject({ status: "completed", tools, tool_choice: "auto" });
  });
  it("rejects forced hosted tools, images and background responses by name", async () => {
    const address = await adder();
    const create = (more: object): Promise<unknown> => client(address).responses.create({ model: address.model, input: "hello", ...more });
    await expect(create({ tools: [{ type: "web_search" }], tool_choice: { type: "web_search" } })).rejects.toThrow(
      /tool_choice\.type.*web_search/u,
    );
    await expect(create({ background: true })).rejects.toMatchObject({ status: 400, param: "background" });
    const image = { role: "user", content: [{ type: "input_image", image_url: "https://example.com/a.png" }] };
    await expect(create({ input: [image] })).rejects.toThrow(/input\.0\.content\.0\.type.*input_image/u);
    await expect(create({ temperature: -1 })).rejects.toMatchObject({ status: 400, param: "temperature" });
  });
});

describe("openai responses with the shipped model", async () => {
  const address = await shippedModel();
  it("parses an answer constrained to a schema", async () => {
    const Person = z.object({ name: z.string().max(6), isOld: z.boolean() });
    const more = { seed: 3, frequency_penalty: 2 };
    const response = await client(address).responses.parse({
      model: address.model,
      input: "who?",
      max_output_tokens: 300,
      text: { format: zodTextFormat(Person, "person") },
      ...more,
    });
    expect(response.status).toBe("completed");
    expect(Person.safeParse(response.output_parsed).success).toBe(true);
  });
});
