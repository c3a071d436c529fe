/** The reference of chat completion fields against the schema, and its columns against what the service does. */
import { describe, expect, it } from "vitest";
import { chatCompletionRequest } from "../../src/schema/index.ts";
import { CARRIED_FIELDS, INERT_FIELDS } from "../../src/service/chat/fields.ts";
import { CONTEXT, HELLO, useChatServer } from "../service/chat/support.ts";
import { read } from "./files.ts";

type Row = Readonly<Record<"effect" | "default" | "bound" | "error", string>>;

const rows = new Map(
  [...read("docs/reference/chat-completions.md").matchAll(/^\| `(\w+)` \|([^|\n]*)\|([^|\n]*)\|([^|\n]*)\|([^|\n]*)\|$/gmu)].map(
    ([, field = "", ...cells]): [string, Row] => {
      const [effect = "", initial = "", bound = "", error = ""] = cells.map((cell) => cell.trim());
      return [field, { effect, default: initial, bound, error }];
    },
  ),
);
const fields = Object.keys(chatCompletionRequest.shape);

/** Bodies with a value outside the bound of the field, each with the param that its refusal names; none where there is no bound. */
const OUTSIDE: Readonly<Record<string, readonly (readonly [body: object, param: string | null])[]>> = {
  messages: [
    [{ messages: [] }, null],
    [{ messages: [{ role: "user", content: [{ type: "image_url" }] }] }, null],
  ],
  model: [[{ model: "no/such/model" }, "model"]],
  frequency_penalty: [[{ frequency_penalty: 2.1 }, null]],
  logit_bias: [[{ logit_bias: { 99999999: 1 } }, "logit_bias"]],
  top_logprobs: [
    [{ top_logprobs: 1 }, "top_logprobs"],
    [{ top_logprobs: -2, logprobs: true }, "top_logprobs"],
    [{ top_logprobs: 21, logprobs: true }, "logprobs"],
  ],
  max_tokens: [
    [{ max_tokens: 0 }, "max_tokens"],
    [{ max_tokens: CONTEXT + 1 }, "max_tokens"],
    [{ max_tokens: CONTEXT }, "input_tokens"],
  ],
  max_completion_tokens: [
    [{ max_completion_tokens: 0 }, "max_tokens"],
    [{ max_completion_tokens: CONTEXT + 1 }, "max_completion_tokens"],
  ],
  n: [
    [{ n: 0 }, null],
    [{ n: 129 }, null],
    [{ n: 2, temperature: 0 }, null],
  ],
  presence_penalty: [[{ presence_penalty: -3 }, null]],
  seed: [[{ seed: 1e19 }, null]],
  stop: [[{ stop: [""] }, null]],
  stream_options: [[{ stream_options: { include_usage: true } }, "stream_options"]],
  temperature: [[{ temperature: -0.1 }, "temperature"]],
  top_p: [[{ top_p: 0 }, "top_p"]],
  tools: [[{ tools: [{ type: "search" }] }, null]],
  tool_choice: [[{ tool_choice: "auto" }, null]],
  reasoning_effort: [[{ reasoning_effort: "extreme" }, null]],
  top_k: [[{ top_k: -2 }, null]],
  min_p: [[{ min_p: 1.5 }, null]],
  repetition_penalty: [[{ repetition_penalty: 0 }, null]],
  min_tokens: [[{ min_tokens: 6, max_tokens: 5 }, null]],
  truncate_prompt_tokens: [[{ truncate_prompt_tokens: 0 }, "truncate_prompt_tokens"]],
  prompt_logprobs: [[{ prompt_logprobs: 21 }, "prompt_logprobs"]],
  allowed_token_ids: [[{ allowed_token_ids: [] }, "allowed_token_ids"]],
  bad_words: [[{ bad_words: [""] }, null]],
  continue_final_message: [[{ continue_final_message: true }, null]],
  chat_template: [[{ chat_template: "x" }, null]],
  chat_template_kwargs: [[{ chat_template_kwargs: { chat_template: "x" } }, null]],
  priority: [[{ priority: 1 }, "priority"]],
  cache_salt: [
    [{ cache_salt: "" }, null],
    [{ cache_salt: "s".repeat(1025) }, null],
  ],
  response_format: [
    [{ response_format: { type: "json_schema" } }, "response_format"],
    [{ response_format: { type: "json_schema", json_schema: { name: "a", schema: { not: {} } } } }, null],
  ],
  structured_outputs: [
    [{ structured_outputs: { regex: "a", choice: ["a"] } }, null],
    [{ structured_outputs: { regex: "(?=a)" } }, null],
  ],
  repetition_detection: [[{ repetition_detection: { max_pattern_size: 2, min_count: 1 } }, null]],
};
const { server, refusal } = await useChatServer();

describe("the reference of chat completion fields", () => {
  it("has a row for every field of the schema, in its order, and for nothing else", () => {
    expect([...rows.keys()]).toEqual(fields);
  });

  it.each(fields)("`%s`: says what it does and where it ends", (field) => {
    const row = rows.get(field)!;
    for (const cell of [row.effect, row.default, row.error]) expect(cell).not.toBe("");
    const hasBound = Object.hasOwn(OUTSIDE, field);
    expect(row.error === "–", "an error where there is a bound").toBe(!hasBound);
    if (row.error === "–") expect(row.bound).toBe("–");
  });

  it.each(Object.entries(OUTSIDE))("`%s`: a value outside its bound is answered as its row says", async (field, bodies) => {
    const { error } = rows.get(field)!;
    for (const [body, param] of bodies) {
      const answer = await refusal(body);
      expect(answer.param, JSON.stringify(body)).toBe(param);
      expect(error).toContain(String(answer.status));
      if (param !== null) expect(error).toContain(`\`${param}\``);
      else if (bodies.every(([, each]) => each === null) && field !== "tool_choice") expect(error).not.toContain("param");
    }
  });

  it.each(fields.filter((field) => /^`[^`]+`/u.test(rows.get(field)!.default)))("`%s`: its default is taken", async (field) => {
    const literal = /^`([^`]+)`/u.exec(rows.get(field)!.default)![1]!;
    if (literal.startsWith('"')) return; // a default that depends on another field
    expect((await server.post({ ...HELLO, [field]: JSON.parse(literal) })).status).toBe(200);
  });

  it("names the fields that cannot be null", () => {
    const listed = /null is a wrong type for (.*?)\. /u.exec(read("docs/reference/chat-completions.md"))![1]!;
    const strict = Object.entries(CARRIED_FIELDS).filter(([field, schema]) => field !== "messages" && !schema.safeParse(null).success);
    expect([...listed.matchAll(/`(\w+)`/gu)].map(([, field]) => field)).toEqual(strict.map(([field]) => field).toSorted());
  });

  it.each(INERT_FIELDS)("`%s`: has no effect, and says so", (field) => {
    expect(rows.get(field)!.effect).toContain("no effect");
  });
});
