/** Structured output of the shipped model, over the service and the embedded engine. */
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateObject } from "ai";
import { Ajv2020 } from "ajv/dist/2020.js";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import OpenAI from "openai";
import { zodResponseFormat } from "openai/helpers/zod";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { z } from "zod";
import { startService, type RunningService } from "../../../src/service/index.ts";
import { HELLO, useChatServer } from "./support.ts";

let service: RunningService;
let directory: string;
const warnings: unknown[] = [];
beforeAll(async () => {
  directory = await mkdtemp(join(tmpdir(), "chat-structured-"));
  service = await startService({
    dataDir: directory,
    logger: { info: () => {}, warn: (...line) => void warnings.push(line), error: () => {} },
  });
});
afterAll(async () => {
  await service.close();
  await rm(directory, { recursive: true });
});

/** The same routes over an engine that records its calls. */
const { server: scripted } = await useChatServer();

async function post(body: object, path = "/v1/chat/completions"): Promise<{ status: number; body: any }> {
  const response = await fetch(service.url + path, {
    method: "POST",
    headers: { "content-type": "application/json", authorization: `Bearer ${service.apiKey}` },
    body: JSON.stringify({ messages: [{ role: "user", content: "say" }], max_tokens: 200, seed: 1, ...body }),
  });
  return { status: response.status, body: await response.json() };
}
async function choicesOf(body: object): Promise<any[]> {
  const answer = await post(body);
  expect(answer.status, JSON.stringify(answer.body)).toBe(200);
  return answer.body.choices;
}
/** Returns the texts of complete choices, at least one. */
async function textsOf(body: object): Promise<string[]> {
  const done = (await choicesOf({ n: 16, ...body })).filter((choice) => choice.finish_reason === "stop");
  expect(done.length).toBeGreaterThan(0);
  return done.map((choice) => choice.message.content);
}
/** Returns the chunks of a stream. */
async function chunksOf(body: object): Promise<any[]> {
  const response = await fetch(`${service.url}/v1/chat/completions`, {
    method: "POST",
    headers: { "content-type": "application/json", authorization: `Bearer ${service.apiKey}` },
    body: JSON.stringify({ messages: [{ role: "user", content: "say" }], max_tokens: 200, seed: 1, stream: true, ...body }),
  });
  const events = (await response.text()).split("\n\n").filter((event) => event.startsWith("data: {"));
  return events.map((event) => JSON.parse(event.slice("data: ".length)));
}

const PERSON = {
  type: "object",
  properties: {
    name: { type: "string", minLength: 1, maxLength: 8 },
    age: { type: "integer", minimum: 0, maximum: 120 },
    tags: { type: "array", items: { enum: ["a", "b"] }, maxItems: 2 },
  },
  required: ["name", "age", "tags"],
  additionalProperties: false,
};
const isPerson = new Ajv2020().compile(PERSON);

describe("structured_outputs", () => {
  it("60: json constrains the text to a schema, given as an object or as text", async () => {
    for (const json of [PERSON, JSON.stringify(PERSON)])
      for (const text of await textsOf({ structured_outputs: { json, disable_any_whitespace: true } }))
        expect(isPerson(JSON.parse(text)), text).toBe(true);
  });
  it("60: supports regex, choice, grammar in both notations, and structural tag", async () => {
    for (const text of await textsOf({ structured_outputs: { regex: "[a-f]{3}-\\d{2}" } })) expect(text).toMatch(/^[a-f]{3}-\d{2}$/);
    const said = new Set(await textsOf({ structured_outputs: { choice: ["yes", "no", "yes and no"] } }));
    for (const text of said) expect(["yes", "no", "yes and no"]).toContain(text);
    expect(said.size).toBeGreaterThan(1);
    for (const text of await textsOf({ structured_outputs: { grammar: 'root ::= n ("+" n){1,2}\nn ::= [1-9] [0-9]?' } }))
      expect(text).toMatch(/^[1-9]\d?(\+[1-9]\d?){1,2}$/);
    for (const text of await textsOf({ structured_outputs: { grammar: "start: WORD~2\nWORD: /[xy]z/" } }))
      expect(text).toMatch(/^([xy]z){2}$/);
    const tag = {
      format: {
        type: "tag",
        begin: "<n>",
        content: { type: "json_schema", json_schema: { type: "integer", minimum: 5, maximum: 12 } },
        end: "</n>",
      },
    };
    for (const text of await textsOf({ structured_outputs: { structural_tag: JSON.stringify(tag) } }))
      expect(text).toMatch(/^<n>([5-9]|1[0-2])<\/n>$/);
  });
  it("60: json_object constrains the text to an object", async () => {
    const body = { structured_outputs: { json_object: true, disable_any_whitespace: true }, temperature: 1.5, n: 48 };
    for (const text of await textsOf(body)) expect(JSON.parse(text)).toBeTypeOf("object");
  });
  it("61: log-probabilities are normalized over allowed tokens; other tokens have -9999", async () => {
    const [choice] = await choicesOf({ structured_outputs: { choice: ["a", "b"] }, logprobs: true, top_logprobs: 5 });
    const [first, end] = choice.logprobs.content;
    const top = first.top_logprobs as { token: string; logprob: number }[];
    expect(
      top
        .slice(0, 2)
        .map(({ token }) => token)
        .toSorted(),
    ).toEqual(["a", "b"]);
    expect(top.slice(0, 2).reduce((sum, { logprob }) => sum + Math.exp(logprob), 0)).toBeCloseTo(1, 4);
    expect(top.slice(2).map(({ logprob }) => logprob)).toEqual([-9999, -9999, -9999]);
    expect(end.logprob).toBeCloseTo(0, 6);
  });
  it("an output cut by the limit is a prefix of a valid text", async () => {
    for (const { message, finish_reason } of await choicesOf({ structured_outputs: { regex: "a{30}" }, max_tokens: 5, n: 4 }))
      expect([message.content.replace(/^a+$/, "a"), finish_reason]).toEqual(["a", "length"]);
  });
  it("with ignore_eos only end tokens follow a complete text, and the text does not change", async () => {
    const [choice] = await choicesOf({ structured_outputs: { choice: ["ab"] }, ignore_eos: true, max_tokens: 12, return_token_ids: true });
    expect([choice.message.content, choice.finish_reason, choice.token_ids.length]).toEqual(["ab", "length", 12]);
  });
  it("can be combined with other logit fields, and is rejected if no token is left", async () => {
    const body = { structured_outputs: { choice: ["a", "b"] }, n: 8, repetition_penalty: 1.5, frequency_penalty: 0.5 };
    expect(new Set((await choicesOf({ ...body, bad_words: ["a"] })).map((choice) => choice.message.content))).toEqual(new Set(["b"]));
    expect((await post({ ...body, n: 1, bad_words: ["a", "b"] })).status).toBe(400);
    expect((await post({ ...body, n: 1, min_tokens: 20 })).status).toBe(400);
  });
  it("follows disable_any_whitespace and whitespace_pattern", async () => {
    const json = { type: "array", items: { type: "boolean" }, minItems: 2, maxItems: 2 };
    const bodies = [{ disable_any_whitespace: true }, { whitespace_pattern: " ?" }] as const;
    for (const text of await textsOf({ structured_outputs: { json, ...bodies[0] } }))
      expect(text).toMatch(/^\[(true|false),(true|false)\]$/);
    for (const text of await textsOf({ structured_outputs: { json, ...bodies[1] } }))
      expect(text).toMatch(/^\[ ?(true|false) ?, ?(true|false) ?\]$/);
    expect((await post({ structured_outputs: { json, whitespace_pattern: "#" } })).status).toBe(400);
  });
  it("closes objects with disable_additional_properties", async () => {
    const json = { type: "object", properties: { a: { type: "boolean" } }, required: ["a"] };
    for (const text of await textsOf({ structured_outputs: { json, disable_any_whitespace: true, disable_additional_properties: true } }))
      expect(text).toMatch(/^\{"a":(true|false)\}$/);
  });
  it("is ignored by beam search, which logs it", async () => {
    const [choice] = await choicesOf({ use_beam_search: true, n: 2, max_tokens: 4, structured_outputs: { choice: ["zzzz"] } });
    expect(choice.message.content).not.toBe("zzzz");
    expect(warnings).toContainEqual([expect.stringContaining("acts on nothing here"), { field: "structured_outputs" }]);
  });
  it.each([
    [{ regex: "[.*" }, /does not parse/],
    [{ regex: "(a)\\1" }, /back reference/],
    [{ json: "{" }, /not JSON/],
    [{ json: { type: "text" } }, /`type`/],
    [{ json: { $ref: "https://example.com/x" } }, /`\$ref`/],
    [{ json: { type: "array", uniqueItems: true, items: { pattern: "(?<" } } }, /does not parse/],
    [{ grammar: "root ::= " }, /expected an item/],
    [{ grammar: "start: x" }, /not defined/],
    [{ structural_tag: "{}" }, /structural tag/],
    [{ structural_tag: "x" }, /not JSON/],
  ])("62: rejects %j before sampling", async (structured_outputs, message) => {
    for (const stream of [false, true]) {
      const { status, body } = await post({ structured_outputs, stream });
      expect([status, body.error.type, body.error.param]).toEqual([400, "BadRequestError", null]);
      expect(body.error.message).toMatch(message);
      expect((await scripted.post({ ...HELLO, structured_outputs, stream })).status).toBe(400);
    }
    expect(scripted.engine.calls.filter(({ verb }) => verb === "sample")).toEqual([]);
  });
});

describe("a schema that the grammar enforces only in part", () => {
  /** The grammar matches only 5. */
  const never = { type: "integer", minimum: 5, maximum: 5, not: { const: 5 } };
  const error = {
    type: "ValidationError",
    code: 422,
    error_code: "E_OUTPUT",
    param: null,
    message: expect.stringMatching(/^Choice \d violates.*`not`.*seed/),
    failed_generation: "5",
  };

  it("fails the request if the text violates it, with the text in the error", async () => {
    for (const n of [1, 3]) {
      const answer = await post({ n, structured_outputs: { json: never } });
      expect([answer.status, answer.body]).toEqual([422, { error }]);
    }
    const message = await post({ structured_outputs: { json: never } }, "/v1/messages");
    expect([message.status, message.body]).toEqual([
      422,
      { type: "error", error: { ...error, type: "invalid_request_error" }, request_id: expect.any(String) },
    ]);
  });
  it("ends a stream with an error instead of the last chunk", async () => {
    const chunks = await chunksOf({ structured_outputs: { json: never } });
    expect(chunks.at(-1)).toEqual({ error });
    expect(chunks.flatMap((chunk) => chunk.choices ?? []).filter((choice) => choice.finish_reason !== null)).toEqual([]);
  });
  it("fails tool calls with arguments that violate it", async () => {
    const tools = [
      { type: "function", function: { name: "f", parameters: { type: "object", properties: { x: never }, required: ["x"] } } },
    ];
    for (const tool_choice of ["required", { type: "function", function: { name: "f" } }]) {
      const { status, body } = await post({ tools, tool_choice, parallel_tool_calls: false });
      expect([status, body.error.error_code]).toEqual([422, "E_OUTPUT"]);
      expect(body.error.message).toContain("/x");
    }
  });
  it("returns a valid text, and a text cut by the limit", async () => {
    const json = { type: "array", uniqueItems: true, items: { type: "integer", minimum: 0, maximum: 9 }, minItems: 1 };
    const few = { json: { ...json, maxItems: 2, contains: { maximum: 9 } }, disable_any_whitespace: true };
    const statuses = new Set<number>();
    for (let seed = 0; seed < 8; seed++) {
      const { status, body } = await post({ seed, structured_outputs: few });
      statuses.add(status);
      if (status !== 200) continue;
      const items = JSON.parse(body.choices[0].message.content) as number[];
      expect(new Set(items).size).toBe(items.length);
    }
    expect(statuses.has(200)).toBe(true);
    const [cut] = await choicesOf({ structured_outputs: { json: { ...json, minItems: 40 } }, max_tokens: 10 });
    expect(cut.finish_reason).toBe("length");
  });
});

describe("response_format", () => {
  it("64: text has no constraint; json_schema and json_object constrain the text", async () => {
    const plain = await choicesOf({ max_tokens: 20 });
    expect((await choicesOf({ max_tokens: 20, response_format: { type: "text" } }))[0].message).toEqual(plain[0].message);
    const compact = { structured_outputs: { disable_any_whitespace: true } };
    for (const text of await textsOf({
      ...compact,
      response_format: { type: "json_schema", json_schema: { name: "person", schema: PERSON } },
    }))
      expect(isPerson(JSON.parse(text)), text).toBe(true);
    for (const text of await textsOf({ ...compact, n: 48, temperature: 1.5, response_format: { type: "json_object" } }))
      expect(JSON.parse(text)).toBeTypeOf("object");
    const format = { type: "structural_tag", format: { type: "const_string", value: "abc" } };
    expect(await textsOf({ response_format: format, n: 1 })).toEqual(["abc"]);
  });
  it("takes precedence over a structured_outputs field of the same kind, and rejects another kind", async () => {
    const response_format = { type: "json_schema", json_schema: { name: "n", schema: { const: "r" } } };
    expect(await textsOf({ response_format, structured_outputs: { json: { const: "s" } }, n: 1 })).toEqual(['"r"']);
    expect((await post({ response_format, structured_outputs: { regex: "a" } })).body.error.type).toBe("Bad Request");
  });
});

const TOOLS = [
  {
    type: "function",
    function: {
      name: "add",
      parameters: { type: "object", properties: { a: { type: "integer", minimum: 0, maximum: 99 } }, required: ["a"] },
    },
  },
  { type: "function", function: { name: "now" } },
];
const NAMED = { type: "function", function: { name: "add" } };
const COMPACT = { structured_outputs: { regex: "overridden", disable_any_whitespace: true } };

describe("tool_choice", () => {
  it("returns arguments cut by the limit without a warning", async () => {
    warnings.length = 0;
    const [choice] = await choicesOf({ tools: TOOLS, tool_choice: NAMED, max_tokens: 2 });
    expect(choice.finish_reason).toBe("length");
    expect(() => JSON.parse(choice.message.tool_calls[0].function.arguments) as unknown).toThrow();
    expect(warnings).toEqual([]);
  });

  it("76: a named function gets valid arguments, and the answer ends by itself", async () => {
    for (const { message, finish_reason } of await choicesOf({ tools: TOOLS, tool_choice: NAMED, n: 16 })) {
      expect(message).toMatchObject({
        content: "",
        tool_calls: [{ type: "function", id: expect.stringMatching(/^chatcmpl-tool-[0-9a-f]{16}$/) }],
      });
      const [call] = message.tool_calls;
      expect(call.function.name).toBe("add");
      if (finish_reason === "length") continue;
      expect(finish_reason).toBe("stop");
      expect(Object.keys(JSON.parse(call.function.arguments))).toEqual(["a"]);
      expect(JSON.parse(call.function.arguments).a).toBeGreaterThanOrEqual(0);
    }
  });
  it("77: required calls at least one tool, gives {} to a tool without parameters, and overrides other constraints", async () => {
    const choices = await choicesOf({ tools: TOOLS, tool_choice: "required", n: 32, ...COMPACT });
    const called = new Set<string>();
    for (const { message, finish_reason } of choices) {
      if (finish_reason === "length") {
        expect(message.tool_calls).toEqual([]);
        continue;
      }
      expect([finish_reason, message.content]).toEqual(["tool_calls", ""]);
      expect(message.tool_calls.length).toBeGreaterThan(0);
      for (const { function: call } of message.tool_calls) {
        called.add(call.name);
        const given = JSON.parse(call.arguments);
        if (call.name === "now") expect(given).toEqual({});
        else expect(given.a).toBeLessThanOrEqual(99);
      }
    }
    expect([...called].toSorted()).toEqual(["add", "now"]);
  });
  it("79: without parallel calls returns one call", async () => {
    const choices = await choicesOf({ tools: TOOLS, tool_choice: "required", parallel_tool_calls: false, n: 16, ...COMPACT });
    const whole = choices.filter(({ finish_reason }) => finish_reason !== "length");
    expect(whole.length).toBeGreaterThan(0);
    for (const { message } of whole) expect(message.tool_calls).toHaveLength(1);
  });
  it.each([
    ["named", { tool_choice: NAMED, seed: 3 }],
    ["required", { tool_choice: "required", seed: 3, ...COMPACT }],
    ["required, cut before a call", { tool_choice: "required", seed: 3, max_tokens: 2, ...COMPACT }],
  ])("%s: a stream joins to the plain answer", async (_name, body) => {
    const [plain] = await choicesOf({ tools: TOOLS, ...body });
    const chunks = await chunksOf({ tools: TOOLS, ...body });
    const calls: any[] = [];
    let content = "";
    for (const { delta } of chunks.flatMap((chunk) => chunk.choices)) {
      content += delta.content ?? "";
      for (const { index, id, type, function: called } of delta.tool_calls ?? []) {
        if (id !== undefined) calls[index] = { id, type, function: { name: called.name, arguments: "" } };
        calls[index].function.arguments += called.arguments;
      }
    }
    const shown = (each: any[]) => each.map(({ type, function: called }) => ({ type, function: called }));
    expect(content).toBe(plain.message.content);
    expect(shown(calls)).toEqual(shown(plain.message.tool_calls));
    const finishes = chunks.flatMap((chunk) => chunk.choices).flatMap((choice) => choice.finish_reason ?? []);
    expect(finishes).toEqual([plain.finish_reason]);
  });
  it("rejects a named function with structured_outputs, and parameters that are not an object schema", async () => {
    expect((await post({ tools: TOOLS, tool_choice: NAMED, structured_outputs: { regex: "a" } })).body.error.type).toBe("Bad Request");
    const tools = [{ type: "function", function: { name: "f", parameters: { type: "string" } } }];
    expect((await post({ tools, tool_choice: "required" })).body.error.message).toMatch(/parameters.*object/);
  });
});

describe("clients", () => {
  const Person = z.object({ name: z.string().max(6), age: z.int().min(0).max(9), kind: z.enum(["x", "y"]) });

  it("openai: parses structured output", async () => {
    const client = new OpenAI({ baseURL: `${service.url}/v1`, apiKey: service.apiKey, maxRetries: 0 });
    const completion = await client.chat.completions.parse({
      model: "",
      messages: [{ role: "user", content: "say" }],
      response_format: zodResponseFormat(Person, "person"),
      temperature: 0,
      max_tokens: 300,
    });
    expect(Person.parse(completion.choices[0]!.message.parsed)).toEqual(completion.choices[0]!.message.parsed);
  });
  it("openai: joins streamed tool calls", async () => {
    const client = new OpenAI({ baseURL: `${service.url}/v1`, apiKey: service.apiKey, maxRetries: 0 });
    const stream = client.chat.completions.stream({
      model: "",
      messages: [{ role: "user", content: "say" }],
      tools: TOOLS as OpenAI.ChatCompletionTool[],
      tool_choice: NAMED as OpenAI.ChatCompletionNamedToolChoice,
      temperature: 0,
      max_tokens: 300,
    });
    const [call] = (await stream.finalMessage()).tool_calls!;
    expect(call).toMatchObject({ type: "function", function: { name: "add" } });
    expect(JSON.parse((call as { function: { arguments: string } }).function.arguments)).toHaveProperty("a");
  });
  it("AI SDK: generateObject returns a valid object", async () => {
    const provider = createOpenAICompatible({
      name: "local",
      baseURL: `${service.url}/v1`,
      apiKey: service.apiKey,
      supportsStructuredOutputs: true,
    });
    const { object } = await generateObject({
      model: provider(""),
      schema: Person,
      prompt: "say",
      temperature: 0,
      maxOutputTokens: 300,
      maxRetries: 0,
    });
    expect(Person.parse(object)).toEqual(object);
  });
});
