/** Every field of the contract is supported. */
import { fc, test } from "@fast-check/vitest";
import { describe, expect, it } from "vitest";
import { CHAT_FIELDS, type FieldName } from "../../../src/base/schema/chat-fields.ts";
import { HELLO, useChatServer } from "./support.ts";

const { server, start, refusal } = await useChatServer();

/** Fields of the contract that cannot be null. */
const NOT_NULL: ReadonlySet<string> = new Set([
  ...["messages", "include_reasoning", "use_beam_search", "length_penalty", "include_stop_str_in_output", "ignore_eos", "min_tokens"],
  ...["skip_special_tokens", "spaces_between_special_tokens", "bad_words", "echo", "add_generation_prompt", "continue_final_message"],
  ...["add_special_tokens", "priority", "request_id"],
]);

describe("supported fields", () => {
  const WRONG: Readonly<Record<FieldName, readonly unknown[]>> = {
    messages: ["x"],
    model: [1],
    logprobs: ["x", 2],
    top_logprobs: ["x", 1.5],
    max_tokens: ["x", 2.5],
    max_completion_tokens: ["x"],
    n: [1.5, "two"],
    seed: ["x", 0.5],
    stop: [1, [1], {}],
    stream: ["x"],
    stream_options: ["x"],
    temperature: ["x", {}],
    top_p: ["x"],
    top_k: [1.5],
    tools: ["x", [{}], [{ type: "search" }]],
    tool_choice: [5, "any"],
    user: [1],
    request_id: [1],
    return_token_ids: ["x"],
    prompt_logprobs: [-2, "x"],
    echo: ["x"],
    use_beam_search: [[]],
    priority: [0.5, 1e19],
    frequency_penalty: ["a", {}],
    logit_bias: ["a", { 5: "x" }, []],
    presence_penalty: ["a"],
    reasoning_effort: ["extreme", 1],
    include_reasoning: ["maybe"],
    parallel_tool_calls: [2],
    min_p: ["b"],
    repetition_penalty: ["b"],
    length_penalty: [[]],
    stop_token_ids: [1, ["a"]],
    include_stop_str_in_output: ["x"],
    ignore_eos: [5],
    min_tokens: [0.5],
    skip_special_tokens: ["x"],
    spaces_between_special_tokens: ["x"],
    truncate_prompt_tokens: [-2, 1e19, "x"],
    allowed_token_ids: [1],
    bad_words: ["no", [1]],
    add_generation_prompt: ["x"],
    continue_final_message: ["x"],
    add_special_tokens: ["x"],
    documents: [[{ title: 1 }], {}],
    chat_template: [1],
    chat_template_kwargs: [1, [], { chat_template: 5 }],
    mm_processor_kwargs: [1],
    return_tokens_as_token_ids: ["x"],
    cache_salt: ["", "s".repeat(1025), 5],
    kv_transfer_params: ["x"],
    engine_xargs: [{ a: true }, "x"],
    response_format: [{ type: "xml" }, {}, "text", { type: "json_schema" }, { type: "json_schema", json_schema: { name: "a" } }],
    structured_outputs: [{}, { regex: "a", json: {} }, "x", [], { regex: {} }, { choice: [] }, { grammar: " " }, { json_object: false }],
    repetition_detection: [{ min_count: "x" }, 1],
  };
  it.each(Object.entries(WRONG))(
    "%s: a wrong type is rejected by name; null is rejected only if the schema excludes it",
    async (name, values) => {
      for (const value of values) {
        const { status, type, message } = await refusal({ [name]: value, ...(name === "stream_options" ? { stream: true } : {}) });
        expect([status, type], JSON.stringify(value)).toEqual([400, "Bad Request"]);
        expect(message).toContain(name);
      }
      expect((await server.post({ ...HELLO, [name]: null })).status).toBe(NOT_NULL.has(name) ? 400 : 200);
    },
  );

  it("vllm_xargs is an alias of engine_xargs", async () => {
    expect(await refusal({ vllm_xargs: { a: true } })).toMatchObject({ status: 400, type: "Bad Request" });
    expect((await server.post({ ...HELLO, vllm_xargs: { a: 1 } })).status).toBe(200);
  });

  it("reject integers of more than 40 characters", async () => {
    const response = await server.post({ ...HELLO, seed: "9".repeat(100_000) });
    expect([response.status, ((await response.json()) as { error: { message: string } }).error.message]).toEqual([
      400,
      expect.stringMatching(/`seed`: expected an integer of at most 40 characters, got "9+\.\.\./),
    ]);
    expect((await server.post({ ...HELLO, seed: " 9223372036854775807.0 " })).status).toBe(200);
  });

  it("fields without effect are logged once, and only if they request something", async () => {
    const inert = {
      mm_processor_kwargs: { a: 1 },
      kv_transfer_params: { a: 1 },
      engine_xargs: { a: [1, "b"] },
      length_penalty: 0.5,
      user: "me",
      spaces_between_special_tokens: false,
      include_reasoning: false,
    };
    const fresh = await start();
    const linesOf = (field: string): number => fresh.log.filter((line) => (line.fields as { field?: string }).field === field).length;
    await fresh.complete({
      ...HELLO,
      mm_processor_kwargs: {},
      length_penalty: 1,
      engine_xargs: null,
      spaces_between_special_tokens: true,
      include_reasoning: true,
    });
    for (const field of Object.keys(inert)) expect(linesOf(field), field).toBe(0);
    for (let turn = 0; turn < 2; turn++) {
      const { kv_transfer_params } = await fresh.complete({ ...HELLO, ...inert });
      expect(kv_transfer_params).toBeNull();
    }
    for (const field of Object.keys(inert)) expect(linesOf(field), field).toBe(1);
  });
});

const anyValue = fc.oneof(fc.jsonValue({ maxDepth: 2 }), fc.constantFrom(0, 1, true, "1", [], {}, [{}], 2 ** 53, 1e300, "auto"));
const anyBody = fc.dictionary(fc.constantFrom(...Object.keys(CHAT_FIELDS), "unknown", "__proto__", "constructor"), anyValue, {
  maxKeys: 6,
});
test.prop([anyBody, fc.boolean()], { numRuns: 150 })(
  "93: no body causes a server error or leaves a lease open",
  async (body, hasMessages) => {
    const response = await server.post({ ...body, ...(hasMessages ? HELLO : {}) });
    await response.text();
    expect(response.status).toBeLessThan(500);
    expect(server.openLeases()).toBe(0);
  },
);
