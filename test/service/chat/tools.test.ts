/** Parsing of tool calls in the text, plain and streamed, and through the openai client. */
import OpenAI from "openai";
import { fc, test } from "@fast-check/vitest";
import { describe, expect, it } from "vitest";
import { parseToolCalls, ToolCallStream } from "../../../src/service/chat/text/tool-calls.ts";
import { chatServers, HELLO, joinChoice, readEvents, tokenizer, type ChatServer, type ChatServerOptions } from "./support.ts";

const startServer = chatServers();
const start = (options: ChatServerOptions = {}): Promise<ChatServer> => startServer({ contextLength: 1000, ...options });

const TOOLS = [
  {
    type: "function" as const,
    function: { name: "add", description: "adds", parameters: { type: "object", properties: { a: { type: "number" } } } },
  },
];
const call = (name: string, args: string): string => `<tool_call>{"name": "${name}", "arguments": ${args}}</tool_call>`;
const TWO = `Let me see. ${call("add", '{"a":1,  "b": 12345678901234567890}')} and ${call("sub", "{}")}`;

describe("tool_choice", () => {
  it("73: defaults to none without tools and auto with tools; auto and required without tools are rejected", async () => {
    const server = await start({ says: TWO });
    const finish = async (body: object): Promise<string> => (await server.complete({ ...HELLO, ...body })).choices[0].finish_reason;
    for (const tools of [undefined, null, []]) expect(await finish({ tools })).toBe("stop");
    expect(await finish({ tools: [], tool_choice: "required" })).toBe("stop");
    expect(await finish({ tools: TOOLS })).toBe("tool_calls");
    expect(await finish({ tools: TOOLS, tool_choice: "auto" })).toBe("tool_calls");
    expect(await finish({ tools: TOOLS, tool_choice: null })).toBe("tool_calls");
    expect(await finish({ tools: TOOLS, tool_choice: "none" })).toBe("stop");
    for (const tool_choice of ["auto", "required"]) {
      const response = await server.post({ ...HELLO, tool_choice });
      expect([response.status, ((await response.json()) as any).error.message]).toEqual([
        400,
        expect.stringContaining("`tools` must be set"),
      ]);
    }
  });
  it("74: rejects a named function that is missing, unnamed or not among the tools", async () => {
    const server = await start();
    const named = (tool_choice: unknown, tools: unknown = TOOLS): Promise<Response> => server.post({ ...HELLO, tool_choice, tools });
    for (const choice of [
      {},
      { function: "add" },
      { function: {} },
      { type: "function", function: { name: "" } },
      { type: "function", function: { name: "nope" } },
    ]) {
      const response = await named(choice);
      expect([response.status, ((await response.json()) as any).error.type]).toEqual([400, "Bad Request"]);
    }
    expect((await named({ type: "function", function: { name: "add" } }, null)).status).toBe(400);
    expect((await named({ type: "function", function: { name: "add" } }, [{ type: "function" }])).status).toBe(400);
  });
  it("75: without a tool parser rejects every choice that allows calls", async () => {
    const server = await start({ limits: { toolParser: "none" }, says: TWO });
    for (const tool_choice of [undefined, "auto", "required", { type: "function", function: { name: "add" } }]) {
      const response = await server.post({ ...HELLO, tools: TOOLS, tool_choice });
      expect(response.status).toBe(400);
      expect(((await response.json()) as any).error).toMatchObject({
        type: "BadRequestError",
        param: null,
        message: expect.stringMatching(/tool_choice.*toolParser/),
      });
    }
    expect((await server.complete({ ...HELLO, tools: TOOLS, tool_choice: "none" })).choices[0].message.content).toBe(TWO);
  });
  it("renders tools into the prompt for every tool_choice", async () => {
    const server = await start();
    const prompt = async (body: object): Promise<string> =>
      tokenizer.decode((await server.complete({ ...HELLO, return_token_ids: true, ...body })).prompt_token_ids);
    expect(await prompt({ tools: TOOLS })).toContain('"description"');
    expect(await prompt({ tools: TOOLS, tool_choice: "none" })).toBe(await prompt({ tools: TOOLS }));
    expect(await prompt({ tools: [] })).toBe(await prompt({}));
  });
});

describe("tool calls in the text", () => {
  it("are removed from the content, with their arguments as sampled", async () => {
    const { message, finish_reason, stop_reason } = (await (await start({ says: TWO })).complete({ ...HELLO, tools: TOOLS })).choices[0];
    expect(message).toMatchObject({
      content: "Let me see. ",
      tool_calls: [
        {
          id: expect.stringMatching(/^chatcmpl-tool-[0-9a-f]{16}$/),
          type: "function",
          function: { name: "add", arguments: '{"a":1,  "b": 12345678901234567890}' },
        },
        { type: "function", function: { name: "sub", arguments: "{}" } },
      ],
    });
    expect([finish_reason, stop_reason]).toEqual(["tool_calls", null]);
  });
  it("leave null content without other text; the last call may be unclosed", async () => {
    const says = call("add", '{"a": 1}').replace("</tool_call>", "");
    const { choices } = await (await start({ says })).complete({ ...HELLO, tools: TOOLS, max_tokens: tokenizer.encode(says).length });
    expect(choices[0]).toMatchObject({
      message: { content: null, tool_calls: [{ function: { name: "add" } }] },
      finish_reason: "tool_calls",
    });
  });
  it.each([
    "<tool_call>",
    "<tool_call>{",
    '<tool_call>{"name": 5, "arguments": {}}</tool_call>',
    '<tool_call>{"name": "a", "arguments": "x"}</tool_call>',
    `${call("add", "{}")}<tool_call>oops</tool_call>`,
  ])("leave the whole text as content if one does not parse: %s", async (says) => {
    const server = await start({ says });
    const { choices } = await server.complete({ ...HELLO, tools: TOOLS });
    expect(choices[0]).toMatchObject({ message: { content: says, tool_calls: [] }, finish_reason: "stop" });
    const { chunks } = await readEvents(await server.post({ ...HELLO, tools: TOOLS, stream: true }));
    expect(joinChoice(chunks)).toMatchObject({ content: says, toolCalls: [], finishes: ["stop"] });
  });
  it("are the same in a stream, which contains every token id", async () => {
    const server = await start({ says: TWO });
    const asked = { ...HELLO, tools: TOOLS, return_token_ids: true, logprobs: true };
    const { choices } = await server.complete(asked);
    const { chunks } = await readEvents(await server.post({ ...asked, stream: true }));
    const joined = joinChoice(chunks);
    expect(joined).toMatchObject({ content: choices[0].message.content, finishes: ["tool_calls"], tokenIds: choices[0].token_ids });
    expect(joined.logprobs).toEqual(choices[0].logprobs.content);
    expect(joined.toolCalls.map((one) => one.function)).toEqual(choices[0].message.tool_calls.map((one: any) => one.function));
    const first = joined.parts.find((part) => part.delta.tool_calls);
    expect(first.delta.tool_calls).toEqual([
      { index: 0, id: expect.any(String), type: "function", function: { name: "add", arguments: "" } },
    ]);
  });

  const piece = fc.constantFrom(
    "<tool_call>",
    "</tool_call>",
    '{"name": "f", "arguments": {"x": 1}}',
    "<",
    "<tool",
    "_call>",
    "text ",
    "{",
  );
  test.prop([fc.array(piece, { maxLength: 8 }), fc.infiniteStream(fc.integer({ min: 1, max: 5 }))])(
    "streamed content equals plain content, for any chunk boundaries",
    (pieces, sizes) => {
      const text = pieces.join("");
      const plain = parseToolCalls(text);
      const stream = new ToolCallStream();
      let content = "";
      for (let at = 0; at < text.length;) {
        const size = sizes.next().value;
        content += stream.push(text.slice(at, at + size));
        at += size;
      }
      if (plain.toolCalls.length === 0) content += stream.takeHeldText();
      expect(content).toBe(plain.content);
    },
  );
});

describe("the openai client", () => {
  const client = (server: ChatServer): OpenAI => new OpenAI({ baseURL: `${server.url}/v1`, apiKey: "key", maxRetries: 0 });

  it("plain: returns tool calls, and accepts them and their results as messages", async () => {
    const server = await start({ says: ({ prompt }) => (tokenizer.decode(prompt).includes("<|tool|>") ? "it is 3" : TWO) });
    const messages: OpenAI.ChatCompletionMessageParam[] = [{ role: "user", content: "1 + 2?" }];
    const first = await client(server).chat.completions.create({ model: "demo/chat/reverse", messages, tools: TOOLS });
    const { message, finish_reason } = first.choices[0]!;
    expect(finish_reason).toBe("tool_calls");
    messages.push(message, ...message.tool_calls!.map((one) => ({ role: "tool" as const, tool_call_id: one.id, content: "3" })));
    const second = await client(server).chat.completions.create({ model: "demo/chat/reverse", messages, tools: TOOLS });
    expect(second.choices[0]!.message.content).toBe("it is 3");
    expect(second.model).toBe("demo/chat/reverse:step7");
  });
  it("streaming: the accumulated chunks equal the plain answer", async () => {
    const server = await start({ says: TWO });
    const streamed = client(server).chat.completions.stream({
      model: "demo/chat/reverse",
      messages: [{ role: "user", content: "hi" }],
      tools: TOOLS,
      tool_choice: "auto",
      stream_options: { include_usage: true },
    });
    const final = await streamed.finalChatCompletion();
    expect(final.choices[0]).toMatchObject({
      finish_reason: "tool_calls",
      message: { content: "Let me see. ", tool_calls: [{ function: { name: "add" } }, { function: { name: "sub" } }] },
    });
    expect(final.usage!.completion_tokens).toBe(tokenizer.encode(TWO).length + 1);
  });
  it("throws its own error classes for our errors", async () => {
    const server = await start({
      before: (made) => {
        if (made.verb === "sampleToken") throw new Error("broken");
      },
    });
    const ask = (body: object) =>
      client(server).chat.completions.create({ model: "demo/chat/reverse", messages: [{ role: "user", content: "hi" }], ...body });
    await expect(ask({ model: "nope" })).rejects.toBeInstanceOf(OpenAI.NotFoundError);
    await expect(ask({ temperature: -1 })).rejects.toBeInstanceOf(OpenAI.BadRequestError);
    await expect(ask({})).rejects.toBeInstanceOf(OpenAI.InternalServerError);
    const streamed = client(server).chat.completions.stream({ model: "demo/chat/reverse", messages: [{ role: "user", content: "hi" }] });
    await expect(streamed.finalChatCompletion()).rejects.toBeInstanceOf(OpenAI.APIError);
  });
});
