/** Compares the reference page of chat completion fields with the schema, and its columns with the service. */
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { CHAT_FIELDS, FIELD_ROWS, type ChatField, type FieldName } from "../../src/base/schema/chat-fields.ts";
import { parseBody, readChat } from "../../src/service/chat/request/request.ts";
import { CONTEXT, HELLO, useChatServer } from "../service/chat/support.ts";
import { fieldTable, strictFields } from "../support/chat-field-table.ts";
import { read, ROOT } from "./files.ts";

const PAGE = "docs/reference/chat-completions.md";
const START = "<!-- fields -->\n";
const END = "<!-- /fields -->\n";

type Row = Readonly<Record<"default" | "effect" | "bound" | "error", string>>;

const rows = new Map(
  fieldTable.split("\n").flatMap((line): [string, Row][] => {
    const [, field = "", , initial = "", effect = "", bound = "", error = ""] = line.split(/^\| | \| | \|$/u);
    const name = /^`(\w+)`$/u.exec(field)?.[1];
    return name === undefined ? [] : [[name, { effect, default: initial, bound, error }]];
  }),
);
const fields = Object.keys(CHAT_FIELDS) as FieldName[];

/** Bodies with a value outside the bound of the field, each with the `param` of the error; none if there is no bound. */
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

describe("the reference page of chat completion fields", () => {
  it("has the generated table of fields; DOCS_UPDATE=1 writes it", () => {
    const page = read(PAGE);
    const [before, after] = [page.indexOf(START) + START.length, page.indexOf(END)];
    expect(page.slice(0, before).endsWith(START) && after >= before).toBe(true);
    const generated = `\n${fieldTable}\n\n`;
    if (process.env["DOCS_UPDATE"] !== undefined) writeFileSync(join(ROOT, PAGE), page.slice(0, before) + generated + page.slice(after));
    else expect(page.slice(before, after)).toBe(generated);
  });

  it("has a row for every field of the schema, in the same order", () => {
    expect([...rows.keys()]).toEqual(fields);
  });

  it.each(fields)("`%s`: has a description and a supported range", (field) => {
    const row = rows.get(field)!;
    for (const cell of [row.effect, row.default, row.error]) expect(cell).not.toBe("");
    const hasBound = Object.hasOwn(OUTSIDE, field);
    expect(row.error === "–", "an error where there is a bound").toBe(!hasBound);
    if (row.error === "–") expect(row.bound).toBe("–");
  });

  it.each(Object.entries(OUTSIDE))("`%s`: a value outside its bound is answered as the row states", async (field, bodies) => {
    const { error } = rows.get(field)!;
    for (const [body, param] of bodies) {
      const answer = await refusal(body);
      expect(answer.param, JSON.stringify(body)).toBe(param);
      expect(error).toContain(String(answer.status));
      if (param !== null) expect(error).toContain(`\`${param}\``);
      else if (bodies.every(([, each]) => each === null) && field !== "tool_choice") expect(error).not.toContain("param");
    }
  });

  const LITERAL = /^`([^`"]+)`/u;

  it.each(FIELD_ROWS)("`%s`: has no other default than the schema", (field, row: ChatField) => {
    const { default: cell } = rows.get(field)!;
    const literal = LITERAL.exec(cell)?.[1];
    const initial = row.default ?? row.modelDefault ?? null;
    if (literal !== undefined) expect(JSON.parse(literal)).toEqual(typeof initial === "bigint" ? Number(initial) : initial);
    // The model, another field or chance determines the default.
    else expect(initial).toBeNull();
    expect(cell.endsWith("¹")).toBe(row.modelDefault !== undefined || ["max_tokens", "max_completion_tokens"].includes(field));
  });

  /** Members without which a field has no effect. */
  const USED_WITH: Readonly<Record<string, object>> = {
    length_penalty: { use_beam_search: true, n: 2 },
    top_logprobs: { logprobs: true },
    echo: { add_generation_prompt: false },
    continue_final_message: { add_generation_prompt: false },
  };

  it.each(fields.filter((field) => LITERAL.test(rows.get(field)?.default ?? "")))(
    "`%s`: sending the default has the same result as omitting the field",
    async (field) => {
      const initial: unknown = JSON.parse(LITERAL.exec(rows.get(field)!.default)![1]!);
      const without = { ...HELLO, seed: 1, ...USED_WITH[field] };
      const sampled = async (body: object): Promise<object> => {
        const before = server.engine.calls.length;
        const { id: _, created: __, ...answer } = await server.complete(body);
        return { answer, calls: server.engine.calls.slice(before).map(({ verb, detail }) => ({ verb, detail })) };
      };
      expect(await sampled({ ...without, [field]: initial })).toEqual(await sampled(without));
      // The model or an option of the service replaces such a default after the body is parsed; a template receives the empty list.
      if (/¹|limits\./u.test(rows.get(field)!.default) || field === "documents") return;
      const parsed = (body: object) => {
        return readChat(parseBody(JSON.stringify(body)), { needs: { parsesReasoning: true } });
      };
      expect(parsed({ ...without, [field]: initial })).toEqual(parsed(without));
    },
  );

  it("names the fields that cannot be null", () => {
    expect(read(PAGE)).toContain(`null is a wrong type for ${strictFields}.`);
  });

  it.each(FIELD_ROWS.filter(([, { changes }]) => changes === "none"))("`%s`: has no effect, and the row states it", (field) => {
    expect(rows.get(field)!.effect).toMatch(/no effect/iu);
  });
});
