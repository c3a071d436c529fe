/** Cases for the rows of the error table, in order. */
import { expect } from "vitest";
import { parrot, type ConformanceCase } from "../case.ts";
import { contextLength } from "../facts.ts";
import { TEMPLATELESS } from "../servers.ts";
import type { Target } from "../target.ts";

type Expectation = readonly [body: object | string, param: string | null];

async function expectRefusals(target: Target, type: string, rows: readonly Expectation[]): Promise<void> {
  for (const [body, param] of rows)
    expect(await target.refused(body), JSON.stringify(body).slice(0, 200)).toMatchObject({
      status: 400,
      type,
      param,
      code: 400,
      message: expect.stringMatching(/./),
    });
}

const user = (content: unknown) => ({ messages: [{ role: "user", content }] });

export const errors: readonly ConformanceCase[] = [
  {
    number: "E1",
    title: "bad JSON, another media type, a wrong type, no messages, integers beyond their bounds",
    fields: ["messages", "temperature", "seed"],
    run: async (target) => {
      await expectRefusals(target, "Bad Request", [
        ["{", null],
        [{ temperature: "warm" }, null],
        [{ messages: null }, null],
        [{ messages: "hi" }, null],
        ["{}", null],
        [{ seed: 1e19 }, null],
        [{ truncate_prompt_tokens: -2 }, null],
        [user(null), null],
      ]);
      expect(await target.refused({}, { headers: { "content-type": "text/plain" } })).toMatchObject({ status: 400, type: "Bad Request" });
    },
  },
  {
    number: "E2",
    title: "errors of fields with a specific check name the field",
    fields: ["stream_options", "top_logprobs", "prompt_logprobs", "response_format"],
    run: (target) =>
      expectRefusals(target, "Bad Request", [
        [{ stream_options: { include_usage: true } }, "stream_options"],
        [{ top_logprobs: 2 }, "top_logprobs"],
        [{ logprobs: true, top_logprobs: -2 }, "top_logprobs"],
        [{ prompt_logprobs: -2 }, "prompt_logprobs"],
        [{ prompt_logprobs: 1, stream: true }, "prompt_logprobs"],
        [{ response_format: { type: "json_schema" } }, "response_format"],
      ]),
  },
  {
    number: "E3",
    title: "contradictory fields are rejected without naming a field",
    fields: ["tool_choice", "cache_salt", "continue_final_message", "structured_outputs"],
    run: (target) =>
      expectRefusals(target, "Bad Request", [
        [{ tool_choice: "auto" }, null],
        [{ tool_choice: "sometimes", tools: [{ type: "function", function: { name: "a" } }] }, null],
        [{ cache_salt: "" }, null],
        [{ continue_final_message: true, add_generation_prompt: true }, null],
        [{ structured_outputs: {} }, null],
        [{ structured_outputs: { regex: "a", choice: ["a"] } }, null],
      ]),
  },
  {
    number: "E4",
    title: "an unknown model is 404 and names the field",
    fields: ["model"],
    run: async (target) =>
      expect(await target.refused({ model: "nobody" })).toMatchObject({
        status: 404,
        type: "NotFoundError",
        param: "model",
        message: expect.stringMatching(/nobody.*does not exist/),
      }),
  },
  {
    number: "E5",
    title: "a template that is not trusted, and a part that is not text, are rejected",
    fields: ["chat_template", "messages"],
    run: async (target) => {
      await expectRefusals(target, "BadRequestError", [[{ chat_template: "x" }, null]]);
      for (const part of [{ type: "image_url", image_url: { url: "x" } }, { type: "hologram" }, { colour: "red" }])
        expect(await target.refused(user([part]))).toMatchObject({ status: 400, type: "BadRequestError" });
    },
  },
  {
    number: "E5",
    title: "a template that fails, and a missing template, are rejected",
    fields: ["chat_template", "model"],
    needs: { server: "open", because: "trust in templates of requests, and a model without a template" },
    run: async (target) => {
      for (const body of [{ chat_template: "{{ raise_exception('no') }}" }, { chat_template: "{% if %}" }, { model: TEMPLATELESS }])
        expect(await target.refused(body)).toMatchObject({ status: 400, type: "BadRequestError" });
    },
  },
  {
    number: "E6",
    title: "errors for a request that exceeds the context name the field",
    fields: ["max_tokens", "max_completion_tokens", "truncate_prompt_tokens"],
    run: async (target) => {
      const length = await contextLength(target);
      await expectRefusals(target, "BadRequestError", [
        [user("a b ".repeat(length)), "input_tokens"],
        [{ max_tokens: length + 1 }, "max_tokens"],
        [{ max_completion_tokens: length + 1 }, "max_completion_tokens"],
        [{ truncate_prompt_tokens: length + 1 }, "truncate_prompt_tokens"],
      ]);
    },
  },
  {
    number: "E7",
    title: "errors for temperature, top_p and max_tokens name the field",
    fields: ["temperature", "top_p", "max_tokens"],
    run: (target) =>
      expectRefusals(target, "BadRequestError", [
        [{ temperature: -0.5 }, "temperature"],
        [{ top_p: 1.5 }, "top_p"],
        [{ max_tokens: -1 }, "max_tokens"],
      ]),
  },
  {
    number: "E8",
    title: "errors for other numbers out of range name no field",
    fields: ["min_p", "repetition_penalty", "frequency_penalty", "presence_penalty", "top_k", "n", "stop", "min_tokens"],
    run: (target) =>
      expectRefusals(target, "BadRequestError", [
        [{ min_p: -0.1 }, null],
        [{ repetition_penalty: -1 }, null],
        [{ frequency_penalty: 2.1 }, null],
        [{ presence_penalty: -2.1 }, null],
        [{ top_k: -5 }, null],
        [{ n: 2, temperature: 0 }, null],
        [{ stop: [""] }, null],
        [{ min_tokens: 9, max_tokens: 8 }, null],
        [{ min_tokens: -1 }, null],
      ]),
  },
  {
    number: "E9",
    title: "errors for the engine's bounds name the field, before a stream or in it",
    fields: ["top_logprobs", "prompt_logprobs", "logit_bias", "allowed_token_ids"],
    run: async (target) => {
      const rows: readonly Expectation[] = [
        [{ logprobs: true, top_logprobs: 21 }, "logprobs"],
        [{ logit_bias: { 99999999: 1 } }, "logit_bias"],
        [{ allowed_token_ids: [] }, "allowed_token_ids"],
      ];
      await expectRefusals(target, "BadRequestError", [...rows, [{ prompt_logprobs: 21 }, "prompt_logprobs"]]);
      await expectRefusals(
        target,
        "BadRequestError",
        rows.map(([body, param]): Expectation => [{ ...(body as object), stream: true }, param]),
      );
    },
  },
  {
    number: "E10",
    title: "rejects a grammar, regex or schema that does not compile",
    fields: ["structured_outputs"],
    run: async (target) => {
      for (const structured_outputs of [{ regex: "(" }, { json: "{" }, { grammar: "root ::= (" }])
        for (const stream of [false, true])
          expect(await target.refused({ structured_outputs, stream })).toMatchObject({ status: 400, type: "BadRequestError", param: null });
    },
  },
  {
    number: "E11",
    title: "rejects a priority without priority scheduling",
    fields: ["priority"],
    run: async (target) =>
      expect(await target.refused({ priority: 3 })).toMatchObject({ status: 400, type: "BadRequestError", param: "priority" }),
  },
  {
    number: "E12",
    title: "answers an engine failure without its details",
    needs: parrot("an engine that fails on request"),
    run: async (target) => {
      const answer = await target.refused({ messages: [{ role: "user", content: "fail:" }] });
      expect(answer).toMatchObject({ status: 500, type: "InternalServerError", param: null, code: 500 });
      expect(JSON.stringify(answer)).not.toContain("secret");
    },
  },
  {
    number: "E13",
    title: "rejects a text that violates a keyword that its grammar cannot enforce",
    fields: ["structured_outputs"],
    needs: { server: "open", because: "validation of finished texts" },
    run: async (target) => {
      // The grammar matches only 5, which the schema excludes.
      const structured_outputs = { json: { type: "integer", minimum: 5, maximum: 5, not: { const: 5 } } };
      const violation = {
        type: "ValidationError",
        param: null,
        code: 422,
        error_code: "E_OUTPUT",
        failed_generation: "5",
        message: expect.stringContaining("`not`"),
      };
      expect(await target.refused({ structured_outputs })).toMatchObject({ status: 422, ...violation });
      const { chunks, isDone } = await target.stream({ structured_outputs });
      expect([chunks.at(-1).error, isDone]).toMatchObject([violation, true]);
    },
  },
];
