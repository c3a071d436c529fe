/** Translation of recorded requests and answers, also of other servers. */
import { describe, expect, it } from "vitest";
import { ANSWERS, toChatExchanges, type DialectName, type Exchange, type ResponseLookup } from "../../src/dialects/index.ts";

const nothing: ResponseLookup = {
  response: (id) => expect.fail(`asked for the response ${id}`),
  item: (id) => expect.fail(`asked for the item ${id}`),
};
const user = { role: "user", content: "hi" };

function translate(dialect: DialectName, request: Record<string, unknown>, answer: object, lookup = nothing) {
  return toChatExchanges({ dialect, request, answer: ANSWERS[dialect].parse(answer) } as Exchange, lookup);
}
async function one(dialect: DialectName, request: Record<string, unknown>, answer: object) {
  const [exchange, ...others] = await translate(dialect, request, answer);
  expect(others).toEqual([]);
  return { ...exchange!, choice: exchange!.completion.choices[0]! };
}

const message = (more: object) => ({ id: "m", model: "a/b/c:step1", content: [{ type: "text", text: "so" }], ...more });
const response = (output: object[], more: object = {}) => ({ id: "r", model: "a/b/c:step1", output, ...more });
const said = (text: string) => ({ type: "message", role: "assistant", content: [{ type: "output_text", text }] });

describe("an answer", () => {
  it.each([
    ["end_turn", null, "stop"],
    ["stop_sequence", ".", "stop"],
    ["max_tokens", null, "length"],
    ["tool_use", null, "tool_calls"],
    ["repetition", null, "repetition"],
    [null, null, null],
  ])("of the Messages API with stop_reason %s and stop_sequence %s has the finish reason %s", async (reason, stop, expected) => {
    const { choice } = await one("messages", { messages: [user] }, message({ stop_reason: reason, stop_sequence: stop }));
    expect(choice).toMatchObject({ finish_reason: expected, stop_reason: stop, logprobs: null, token_ids: null });
  });

  it.each([
    [response([said("so")]), "stop"],
    [response([said("so"), { type: "function_call", call_id: "c", name: "add", arguments: "{}" }]), "tool_calls"],
    [response([said("so")], { incomplete_details: { reason: "max_output_tokens" } }), "length"],
    [response([said("so")], { incomplete_details: { reason: "repetition" } }), "repetition"],
  ])("of the Responses API, %j, has the finish reason %s", async (answer, expected) => {
    const { choice } = await one("responses", { input: "hi" }, answer);
    expect(choice.finish_reason).toBe(expected);
    expect(choice.message.content).toBe("so");
  });

  it("keeps the text of streamed arguments, also if they were cut", async () => {
    const content = [{ type: "tool_use", id: "c", name: "add", input: '{"a":  1, "b"' }];
    const { choice } = await one("messages", { messages: [user] }, message({ content, stop_reason: "max_tokens" }));
    expect(choice.message).toMatchObject({
      content: null,
      tool_calls: [{ id: "c", function: { name: "add", arguments: '{"a":  1, "b"' } }],
    });
  });

  it.each([
    [{ prompt_token_ids: [1], token_ids: [2, 3], logprobs: [-1, -2] }],
    [{ token_generations: [{ prompt_token_ids: [1], token_ids: [2, 3], output_tokens: [{ logprob: -1 }, { logprob: -2 }] }] }],
    [{ token_generations: [{ prompt_token_ids: [1], output_tokens: [2, 3].map((id) => ({ token_id: id, logprob: 1 - id })) }] }],
    [{ token_generations: [{ prompt_token_ids: [1], output_tokens: [2, 3].map((id) => ({ token: `token_id:${id}`, logprob: 1 - id })) }] }],
  ])("of the Responses API has the tokens of %j", async (tokens) => {
    const { completion, choice } = await one("responses", { input: "hi" }, response([said("so")], tokens));
    expect([completion.prompt_token_ids, choice.token_ids]).toEqual([[1], [2, 3]]);
    expect(choice.logprobs!.content).toEqual([
      { token: "token_id:2", logprob: -1, top_logprobs: [] },
      { token: "token_id:3", logprob: -2, top_logprobs: [] },
    ]);
  });

  it("of several prompts is one completion per prompt, each with its choices and prompt ids", async () => {
    const choices = [0, 1, 2, 3].map((index) => ({
      index,
      text: `text ${index}`,
      ...(index % 2 === 0 ? { prompt_token_ids: [index] } : {}),
    }));
    const chats = await translate("completions", { prompt: ["one", "two"], n: 2 }, { id: "c", model: "m", choices });
    expect(chats.map(({ request, completion }) => [request.messages[0]!.content, completion.prompt_token_ids])).toEqual([
      ["one", [0]],
      ["two", [2]],
    ]);
    expect(chats.map(({ completion }) => completion.choices.map((choice) => choice.message.content))).toEqual([
      ["text 0", "text 1"],
      ["text 2", "text 3"],
    ]);
    const [ids] = await translate("completions", { prompt: [5, 6] }, { id: "c", model: "m", choices: [{ index: 0, text: "so" }] });
    expect(ids!.completion.prompt_token_ids).toEqual([5, 6]);
  });
});

describe("content that this service rejects", () => {
  it("is kept as a part of the message, and tools of the server are left out", async () => {
    const image = { type: "image", source: { type: "url", url: "https://example.com/a.png" } };
    const tools = [{ type: "web_search_20250305", name: "web_search" }, { name: "add" }];
    const { request } = await one("messages", { messages: [{ role: "user", content: [image] }], tools, container: "c" }, message({}));
    expect(request.messages).toEqual([{ role: "user", content: [image] }]);
    expect(request.tools).toEqual([{ type: "function", function: { name: "add" } }]);
    const parts = [
      { type: "input_text", text: "what?" },
      { type: "input_image", image_url: "https://example.com/a.png" },
    ];
    const hosted = [{ type: "file_search" }, { type: "function", name: "add" }];
    const body = { input: [{ role: "user", content: parts }], tools: hosted, tool_choice: { type: "file_search" }, background: false };
    const other = await one("responses", body, response([said("so")]));
    expect(other.request.messages).toEqual([{ role: "user", content: parts }]);
    expect([other.request.tools, other.request.tool_choice]).toEqual([[{ type: "function", function: { name: "add" } }], undefined]);
  });

  it("of reasoning that a provider encrypted is left out", async () => {
    const encrypted = Buffer.from([0x80, 0, 0, 0xff]).toString("base64");
    const items = [
      { role: "user", content: "hi" },
      { type: "reasoning", summary: [{ type: "summary_text", text: "briefly" }], encrypted_content: encrypted },
      { type: "message", role: "assistant", content: "so" },
    ];
    const { request } = await one("responses", { input: items }, response([said("so")]));
    expect(request.messages[1]).toEqual({ role: "assistant", content: "so", reasoning: "briefly" });
    const content = [
      { type: "redacted_thinking", data: "x" },
      { type: "text", text: "so" },
    ];
    const { choice } = await one("messages", { messages: [user, { role: "assistant", content }, user] }, message({ content }));
    expect(choice.message).toEqual({ role: "assistant", content: "so", tool_calls: [] });
  });

  it.each<[DialectName, Record<string, unknown>, object, string]>([
    ["messages", { messages: [user] }, message({ content: [{ type: "server_tool_use" }] }), "content.0.type"],
    ["responses", { input: "hi" }, response([{ type: "web_search_call" }]), "output.0.type"],
    ["responses", { input: "hi" }, response([{ type: "function_call_output", call_id: "c", output: "" }]), "output"],
    ["responses", { input: "hi" }, response([said("so")], { token_generations: [{}, {}] }), "token_generations"],
    ["completions", { prompt: "hi", echo: true }, { id: "c", model: "m", choices: [] }, "echo"],
  ])("is an error in the answer: %s, %j, %j", async (dialect, request, answer, param) => {
    await expect(translate(dialect, request, answer)).rejects.toMatchObject({ code: "E_UNSUPPORTED", param });
  });

  it.each<[DialectName, Record<string, unknown>, object]>([
    ["chat", { messages: "hi" }, { id: "c", model: "m", choices: [] }],
    ["messages", { messages: [] }, message({})],
    ["responses", {}, response([])],
    ["completions", {}, { id: "c", model: "m", choices: [] }],
    ["generate", {}, { request_id: "g", choices: [], prompt_token_ids: [] }],
  ])("a malformed request of %s, %j, is an error", async (dialect, request, answer) => {
    await expect(translate(dialect, request, answer)).rejects.toMatchObject({ code: "E_ARGUMENT" });
  });
});
