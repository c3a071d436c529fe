/** Translation of the fields, items and blocks of requests. */
import { describe, expect, it } from "vitest";
import { conversationOf, messagesToChat, readResponsesRequest, responsesToChat } from "../../src/dialects/index.ts";
import { messagesOf } from "../../src/dialects/responses/items.ts";

const user = { role: "user", content: "hi" };
const messages = (body: object) => messagesToChat({ messages: [user], ...body }).body;
const responses = (body: object) => {
  const members = { input: "hi", ...body };
  return responsesToChat(members, readResponsesRequest(members), []);
};

describe("a Messages request", () => {
  it("has its system prompt first, and tool results before the text of the same message", () => {
    const { messages: translated } = messages({
      system: [
        { type: "text", text: "a", cache_control: { type: "ephemeral" } },
        { type: "text", text: "b" },
      ],
      messages: [
        user,
        {
          role: "assistant",
          content: [
            { type: "thinking", thinking: "why", signature: "" },
            { type: "text", text: "so" },
            { type: "tool_use", id: "c1", name: "add", input: { b: 1, a: 2 } },
          ],
        },
        {
          role: "user",
          content: [
            { type: "tool_result", tool_use_id: "c1", content: [{ type: "text", text: "3" }], is_error: false },
            { type: "text", text: "and?" },
          ],
        },
        { role: "system", content: "remember" },
      ],
    });
    expect(translated).toEqual([
      {
        role: "system",
        content: [
          { type: "text", text: "a" },
          { type: "text", text: "b" },
        ],
      },
      user,
      {
        role: "assistant",
        content: "so",
        tool_calls: [{ id: "c1", type: "function", function: { name: "add", arguments: '{"b":1,"a":2}' } }],
        reasoning: "why",
      },
      { role: "tool", tool_call_id: "c1", content: "3" },
      { role: "user", content: "and?" },
      { role: "system", content: "remember" },
    ]);
  });
  it.each([
    [{ stop_sequences: ["."] }, { stop: ["."] }],
    [{ thinking: { type: "enabled", budget_tokens: 1024 } }, { chat_template_kwargs: { enable_thinking: true } }],
    [{ thinking: { type: "disabled" } }, { chat_template_kwargs: { enable_thinking: false } }],
    [{ thinking: { type: "adaptive", display: "omitted" } }, { chat_template_kwargs: { enable_thinking: true } }],
    [{ output_config: { effort: "max" } }, { reasoning_effort: "high" }],
    [
      { output_config: { format: { type: "json_schema", schema: { type: "object" } } } },
      { response_format: { type: "json_schema", json_schema: { name: "output", schema: { type: "object" }, strict: true } } },
    ],
    [{ tools: [{ name: "add" }], tool_choice: { type: "any" } }, { tool_choice: "required" }],
    [
      { tools: [{ name: "add" }], tool_choice: { type: "tool", name: "add", disable_parallel_tool_use: true } },
      { tool_choice: { type: "function", function: { name: "add" } }, parallel_tool_calls: false },
    ],
    [{ messages: [user, { role: "assistant", content: "I" }] }, { continue_final_message: true, add_generation_prompt: false }],
    [
      { seed: 3, top_k: 5, return_token_ids: true },
      { seed: 3, top_k: 5, return_token_ids: true },
    ],
  ])("%o is translated to %o", (body, expected) => {
    expect(messages(body)).toMatchObject(expected);
  });
  it("leaves out the fields of other services", () => {
    const ignored = { metadata: { user_id: "u" }, service_tier: "auto", context_management: { edits: [] }, betas: ["x"], mcp_servers: [] };
    expect(messages(ignored)).toEqual({ messages: [user] });
  });
  it.each([
    [{ messages: [{ role: "user", content: [{ type: "image", source: {} }] }] }, "messages.0.content.0.type"],
    [
      { messages: [{ role: "user", content: [{ type: "tool_result", tool_use_id: "c", content: [{ type: "document" }] }] }] },
      "messages.0.content.0.content.0.type",
    ],
    [{ messages: [{ role: "assistant", content: [{ type: "tool_use", id: "c" }] }] }, "messages.0.content.0.name"],
    [{ tools: [{ type: "bash_20250124", name: "bash" }] }, "tools.0.type"],
    [{ tools: [{ type: "web_search_20250305", name: "search" }], tool_choice: { type: "tool", name: "search" } }, "tool_choice.name"],
    [{ tools: [{ type: "web_search_20250305", name: "search" }], tool_choice: { type: "any" } }, "tool_choice.type"],
    [{ mcp_servers: [{ url: "x" }] }, "mcp_servers"],
    [{ container: "c" }, "container"],
    [{ output_config: { format: { type: "xml" } } }, "output_config.format.type"],
    [{ max_tokens: "many" }, "max_tokens"],
  ])("%o is rejected by name", (body, param) => {
    expect(() => messages(body)).toThrow(expect.objectContaining({ param }));
  });
});

describe("a Responses request", () => {
  it("has adjacent items of the assistant as one message", () => {
    const call = (call_id: string, more = {}) => ({ type: "function_call", call_id, name: "add", arguments: "{}", ...more });
    const called = (id: string, name = "add") => ({ id, type: "function", function: { name, arguments: "{}" } });
    const output = [{ type: "output_text", text: "so" }];
    expect(
      messagesOf([
        { role: "user", content: "hi" },
        { type: "reasoning", id: "rs_1", content: [{ type: "reasoning_text", text: "why" }] },
        { type: "message", role: "assistant", content: output },
        call("c1"),
        call("c2", { namespace: "math" }),
        { type: "function_call_output", call_id: "c1", output: "3" },
        { type: "function_call_output", call_id: "c2", output: [{ type: "input_text", text: "4" }] },
        { type: "reasoning", id: "rs_2", summary: [], encrypted_content: Buffer.from("hidden").toString("base64") },
        call("c3"),
        { type: "message", role: "assistant", content: "one" },
        { type: "message", role: "assistant", content: "two" },
      ]),
    ).toEqual([
      { role: "user", content: "hi" },
      { role: "assistant", content: "so", tool_calls: [called("c1"), called("c2", "math.add")], reasoning: "why" },
      { role: "tool", tool_call_id: "c1", content: "3" },
      { role: "tool", tool_call_id: "c2", content: "4" },
      { role: "assistant", content: null, tool_calls: [called("c3")], reasoning: "hidden" },
      { role: "assistant", content: "one" },
      { role: "assistant", content: "two" },
    ]);
  });
  it.each([
    [{ max_output_tokens: 5, instructions: "be brief" }, { max_completion_tokens: 5 }],
    [
      { include: ["message.output_text.logprobs"], top_logprobs: 2 },
      { logprobs: true, top_logprobs: 2 },
    ],
    [{ reasoning: { effort: "low" } }, { reasoning_effort: "low" }],
    [{ text: { format: { type: "json_object" } } }, { response_format: { type: "json_object" } }],
    [
      { text: { format: { type: "json_schema", name: "n", schema: {} } } },
      { response_format: { type: "json_schema", json_schema: { name: "n", schema: {} } } },
    ],
    [
      {
        tools: [{ type: "namespace", name: "math", tools: [{ type: "function", name: "add" }] }],
        tool_choice: { type: "function", name: "add", namespace: "math" },
      },
      {
        tools: [{ type: "function", function: { name: "math.add" } }],
        tool_choice: { type: "function", function: { name: "math.add" } },
      },
    ],
  ])("%o is translated to %o", (body, expected) => {
    expect(responses(body)).toMatchObject(expected);
  });
  it.each([
    [{ tools: [{ type: "custom", name: "a" }] }, "tools.0.type"],
    [
      { tools: [{ type: "function", name: "a" }, { type: "web_search_preview" }], tool_choice: { type: "web_search_preview" } },
      "tool_choice.type",
    ],
    [{ tools: [{ type: "file_search" }], tool_choice: "required" }, "tool_choice"],
    [{ tools: [{ type: "function", name: "a" }], tool_choice: { type: "allowed_tools" } }, "tool_choice.type"],
    [{ truncation: "auto" }, "truncation"],
    [{ conversation: "conv_1" }, "conversation"],
    [{ include: ["message.input_image.image_url"] }, "include"],
    [{ text: { verbosity: "low" } }, "text.verbosity"],
    [{ input: 5 }, "input"],
  ])("%o is rejected by name", (body, param) => {
    expect(() => responses(body)).toThrow(expect.objectContaining({ param }));
  });
});

describe("hosted tools", () => {
  const add = { type: "function", function: { name: "add" } };
  it.each([
    "web_search",
    "web_search_2025_08_26",
    "web_search_preview_2025_03_11",
    "file_search",
    "code_interpreter",
    "image_generation",
    "computer_use_preview",
    "mcp",
    "tool_search",
  ])("of a Responses request are left out: %s", (type) => {
    const include = ["web_search_call.action.sources"];
    expect(responses({ tools: [{ type }, { type: "function", name: "add" }], tool_choice: "auto", include })).toMatchObject({
      tools: [add],
    });
    for (const tool_choice of [undefined, "auto", "none"])
      expect(responses({ tools: [{ type }], tool_choice })).not.toHaveProperty("tools");
  });
  it.each(["web_search_20250305", "web_fetch_20250910", "code_execution_20250825", "computer_20250124", "tool_search_tool_bm25_20251119"])(
    "of a Messages request are left out: %s",
    (type) => {
      expect(messages({ tools: [{ type, name: "hosted" }, { name: "add" }], tool_choice: { type: "auto" } })).toMatchObject({
        tools: [add],
      });
      for (const tool_choice of [undefined, { type: "auto" }, { type: "none" }])
        expect(messages({ tools: [{ type, name: "hosted" }], tool_choice })).toEqual({ messages: [user] });
    },
  );
});

describe("the conversation of a Responses request", () => {
  const said = (text: string) => ({ type: "message", role: "user", content: text });
  /** Response `n`, which continues response `n − 1`. */
  const response = (id: string) => ({ previousId: id === "1" ? null : String(Number(id) - 1), input: [said(id)], output: [] });
  const item = () => Promise.reject(new Error("none"));
  const continuing = (length: number) => conversationOf({ input: "now", previous_response_id: String(length) }, { response, item });

  it("has the items of all previous responses, oldest first", async () => {
    const { items } = await continuing(4096);
    expect([items.length, items[0], items.at(-1)]).toEqual([4097, said("1"), said("now")]);
  });

  it("is rejected instead of losing its beginning, also if responses continue each other in a circle", async () => {
    const error = { code: "E_ARGUMENT", param: "previous_response_id", message: expect.stringContaining("at most 4096 responses") };
    await expect(continuing(4097)).rejects.toMatchObject(error);
    const circle = { response: () => ({ previousId: "a", input: [], output: [] }), item };
    await expect(conversationOf({ input: "now", previous_response_id: "a" }, circle)).rejects.toMatchObject(error);
  });
});
