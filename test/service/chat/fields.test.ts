/** Every field of the contract: carried out, or taken at its default and refused by name. */
import { fc, test } from "@fast-check/vitest";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { chatCompletionRequest, errorBody } from "../../../src/schema/index.ts";
import { REFUSED_FIELDS } from "../../../src/service/chat/refused-fields.ts";
import { CARRIED_FIELDS } from "../../../src/service/chat/fields.ts";
import { HELLO, startChatServer, type ChatServer } from "./support.ts";

interface Row {
  /** Values that ask for nothing, besides null and absence. */
  readonly neutral: readonly unknown[];
  /** Values that ask for something. */
  readonly asking: readonly unknown[];
  /** Values of a wrong type or contradicting themselves. */
  readonly wrong: readonly unknown[];
}

/** One row per field that is not carried out; written by hand, so that the table of the source is held to something. */
const ROWS: Readonly<Record<string, Row>> = {
  response_format: {
    neutral: [{ type: "text" }],
    asking: [{ type: "json_object" }, { type: "json_schema", json_schema: { name: "a", schema: {} } }],
    wrong: [{ type: "xml" }, {}, "text", { type: "json_schema" }],
  },
  structured_outputs: {
    neutral: [],
    asking: [{ regex: "a" }, { choice: ["a"] }, { json: {} }],
    wrong: [{}, { regex: "a", json: {} }, "x", []],
  },
};

let server: ChatServer;
beforeAll(async () => {
  server = await startChatServer();
});
afterAll(() => server.close());

async function refusal(body: object): Promise<{ status: number; message: string; type: string; param: string | null }> {
  const response = await server.post({ ...HELLO, ...body });
  return { status: response.status, ...errorBody.parse(await response.json()).error };
}

describe("fields that are not carried out", () => {
  it("each field of the contract is either carried out or has a row here, never both", () => {
    const contract = Object.keys(chatCompletionRequest.shape).sort();
    expect([...Object.keys(CARRIED_FIELDS), ...Object.keys(ROWS)].sort()).toEqual(contract);
    expect(Object.keys(REFUSED_FIELDS).sort()).toEqual(Object.keys(ROWS).sort());
  });

  it.each(Object.entries(ROWS))("%s: taken when it asks for nothing", async (name, { neutral }) => {
    for (const value of [null, ...neutral])
      expect((await server.post({ ...HELLO, [name]: value })).status, JSON.stringify(value)).toBe(200);
  });

  it.each(Object.entries(ROWS))("%s: refused by name when it asks for something", async (name, { asking }) => {
    for (const value of asking) {
      expect(await refusal({ [name]: value }), JSON.stringify(value)).toMatchObject({
        status: 400,
        type: "BadRequestError",
        param: name,
        message: expect.stringContaining(`The field \`${name}\` is known but not carried out by this build`),
      });
    }
  });

  it.each(Object.entries(ROWS))("%s: a wrong type or value is a bad request that names it", async (name, { wrong }) => {
    for (const value of wrong) {
      const { status, type, message } = await refusal({ [name]: value });
      expect([status, type], JSON.stringify(value)).toEqual([400, "Bad Request"]);
      expect(message).toContain(name);
    }
  });
});

describe("fields that are carried out", () => {
  const WRONG: Readonly<Record<keyof typeof CARRIED_FIELDS, readonly unknown[]>> = {
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
    continue_final_message: [true, "x"],
    add_special_tokens: ["x"],
    documents: [[{ title: 1 }], {}],
    chat_template: [1],
    chat_template_kwargs: [1, [], { chat_template: 5 }],
    mm_processor_kwargs: [1],
    return_tokens_as_token_ids: ["x"],
    cache_salt: ["", 5],
    kv_transfer_params: ["x"],
    engine_xargs: [{ a: true }, "x"],
    repetition_detection: [{ min_count: "x" }, 1],
  };
  it.each(Object.entries(WRONG))("%s: a wrong type is a bad request that names it, null is not", async (name, values) => {
    for (const value of values) {
      const { status, type, message } = await refusal({ [name]: value, ...(name === "stream_options" ? { stream: true } : {}) });
      expect([status, type], JSON.stringify(value)).toEqual([400, "Bad Request"]);
      expect(message).toContain(name);
    }
    if (name !== "messages") expect((await server.post({ ...HELLO, [name]: null })).status).toBe(200);
  });

  it("vllm_xargs is engine_xargs by another name", async () => {
    expect(await refusal({ vllm_xargs: { a: true } })).toMatchObject({ status: 400, type: "Bad Request" });
    expect((await server.post({ ...HELLO, vllm_xargs: { a: 1 } })).status).toBe(200);
  });

  it("what acts on nothing here is logged once", async () => {
    const inert = { mm_processor_kwargs: { a: 1 }, kv_transfer_params: { a: 1 }, engine_xargs: { a: [1, "b"] }, length_penalty: 0.5 };
    for (let turn = 0; turn < 2; turn++) {
      const { kv_transfer_params } = await server.complete({ ...HELLO, ...inert });
      expect(kv_transfer_params).toBeNull();
    }
    for (const field of Object.keys(inert))
      expect(
        server.log.filter((line) => (line.fields as { field?: string }).field === field),
        field,
      ).toHaveLength(1);
    await server.complete({ ...HELLO, mm_processor_kwargs: {}, length_penalty: 1, engine_xargs: null });
  });
});

const anyValue = fc.oneof(fc.jsonValue({ maxDepth: 2 }), fc.constantFrom(0, 1, true, "1", [], {}, [{}], 2 ** 53, 1e300, "auto"));
const anyBody = fc.dictionary(
  fc.constantFrom(...Object.keys(chatCompletionRequest.shape), "unknown", "__proto__", "constructor"),
  anyValue,
  { maxKeys: 6 },
);
test.prop([anyBody, fc.boolean()], { numRuns: 150 })(
  "93: no body is answered with a server error, and nothing stays behind",
  async (body, hasMessages) => {
    const response = await server.post({ ...body, ...(hasMessages ? HELLO : {}) });
    await response.text();
    expect(response.status).toBeLessThan(500);
    expect(server.openLeases()).toBe(0);
  },
);
