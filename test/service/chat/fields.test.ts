/** Every field of the contract: carried out, or taken at its default and refused by name. */
import { fc, test } from "@fast-check/vitest";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { chatCompletionRequest, errorBody } from "../../../src/schema/index.ts";
import { REFUSED_FIELDS } from "../../../src/service/chat/refused-fields.ts";
import { CARRIED_FIELDS } from "../../../src/service/chat/request.ts";
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
  frequency_penalty: { neutral: [0, "0", false], asking: [0.5, -2, 3], wrong: ["a", {}] },
  logit_bias: { neutral: [{}], asking: [{ 5: 1 }, { abc: 1 }], wrong: ["a", { 5: "x" }, []] },
  presence_penalty: { neutral: [0, 0.0], asking: [2.5, "1"], wrong: ["a"] },
  response_format: {
    neutral: [{ type: "text" }],
    asking: [{ type: "json_object" }, { type: "json_schema", json_schema: { name: "a", schema: {} } }],
    wrong: [{ type: "xml" }, {}, "text", { type: "json_schema" }],
  },
  reasoning_effort: { neutral: [], asking: ["low", "high"], wrong: ["extreme", 1] },
  include_reasoning: { neutral: [true, "yes"], asking: [false], wrong: ["maybe"] },
  parallel_tool_calls: { neutral: [true, 1], asking: [false, "off"], wrong: [2] },
  use_beam_search: { neutral: [false], asking: [true], wrong: [[]] },
  min_p: { neutral: [0], asking: [0.1, 1.1], wrong: ["b"] },
  repetition_penalty: { neutral: [1, "1.0"], asking: [0, 1.1], wrong: ["b"] },
  length_penalty: { neutral: [1], asking: [0], wrong: [[]] },
  stop_token_ids: { neutral: [[]], asking: [[1]], wrong: [1, ["a"]] },
  include_stop_str_in_output: { neutral: [false, "f"], asking: [true], wrong: ["x"] },
  ignore_eos: { neutral: [false], asking: [true], wrong: [5] },
  min_tokens: { neutral: [0, "0"], asking: [3, -1], wrong: [0.5] },
  skip_special_tokens: { neutral: [true], asking: [false], wrong: ["x"] },
  spaces_between_special_tokens: { neutral: [true], asking: [false], wrong: ["x"] },
  truncate_prompt_tokens: { neutral: [], asking: [-1, 0, 5], wrong: [-2, 1e19, "x"] },
  prompt_logprobs: { neutral: [], asking: [0, 1, -1], wrong: [-2, "x"] },
  allowed_token_ids: { neutral: [], asking: [[1], []], wrong: [1] },
  bad_words: { neutral: [[]], asking: [["no"]], wrong: ["no", [1]] },
  echo: { neutral: [false], asking: [true], wrong: ["x"] },
  add_generation_prompt: { neutral: [true], asking: [false], wrong: ["x"] },
  continue_final_message: { neutral: [false], asking: [], wrong: [true, "x"] },
  add_special_tokens: { neutral: [false], asking: [true], wrong: ["x"] },
  documents: { neutral: [], asking: [[{ title: "a", text: "b" }], []], wrong: [[{ title: 1 }], {}] },
  chat_template: { neutral: [], asking: ["{{ messages }}", ""], wrong: [1] },
  chat_template_kwargs: { neutral: [{}], asking: [{ thinking: true }], wrong: [1, []] },
  mm_processor_kwargs: { neutral: [{}], asking: [{ a: 1 }], wrong: [1] },
  structured_outputs: {
    neutral: [],
    asking: [{ regex: "a" }, { choice: ["a"] }, { json: {} }],
    wrong: [{}, { regex: "a", json: {} }, "x", []],
  },
  priority: { neutral: [0, "0"], asking: [1, -1], wrong: [0.5, 1e19] },
  return_tokens_as_token_ids: { neutral: [false], asking: [true], wrong: ["x"] },
  cache_salt: { neutral: [], asking: ["salt"], wrong: ["", 5] },
  kv_transfer_params: { neutral: [{}], asking: [{ a: 1 }], wrong: ["x"] },
  engine_xargs: { neutral: [{}], asking: [{ a: 1 }, { a: ["b", 2] }], wrong: [{ a: true }, "x"] },
  repetition_detection: {
    neutral: [{}, { max_pattern_size: 0, min_pattern_size: 0, min_count: 0 }],
    asking: [{ max_pattern_size: 3, min_pattern_size: 2, min_count: 3 }],
    wrong: [{ min_count: "x" }, 1],
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

  it("an alias of a field is no way around it", async () => {
    expect(await refusal({ vllm_xargs: { a: 1 } })).toMatchObject({ status: 400, param: "vllm_xargs" });
  });

  it("a refused value is judged on its digits", async () => {
    for (const [literal, type] of [
      ["9223372036854775807", "BadRequestError"],
      ["9223372036854775808", "Bad Request"],
    ] as const) {
      const response = await server.post(`{"messages":[{"role":"user","content":"hi"}],"truncate_prompt_tokens":${literal}}`);
      expect(((await response.json()) as any).error.type).toBe(type);
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
  };
  it.each(Object.entries(WRONG))("%s: a wrong type is a bad request that names it, null is not", async (name, values) => {
    for (const value of values) {
      const { status, type, message } = await refusal({ [name]: value, ...(name === "stream_options" ? { stream: true } : {}) });
      expect([status, type], JSON.stringify(value)).toEqual([400, "Bad Request"]);
      expect(message).toContain(name);
    }
    if (name !== "messages") expect((await server.post({ ...HELLO, [name]: null })).status).toBe(200);
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
