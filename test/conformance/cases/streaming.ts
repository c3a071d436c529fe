/** Cases 81 to 93: streams, ids, the list of models, priority, failures, random bodies. */
import { expect, vi } from "vitest";
import { parrot, type ConformanceCase } from "../case.ts";
import { fuzz, FUZZ_RUNS } from "../fuzz.ts";

/** Polling options until a server has accepted a request or noticed a disconnect. */
const SOON = { timeout: 60_000, interval: 20 };
const SAY = { seed: 5, max_tokens: 24, ignore_eos: true };
const contentOf = (chunks: readonly any[]): string =>
  chunks.flatMap((chunk) => chunk.choices.map((choice: any) => choice.delta.content ?? "")).join("");

export const streaming: readonly ConformanceCase[] = [
  {
    number: 81,
    title: "joined deltas equal the plain text; the role is first, one finish reason is last, with text if the limit ends it",
    fields: ["stream"],
    run: async (target) => {
      const plain = await target.text(SAY);
      const { chunks, isDone } = await target.stream(SAY);
      expect(isDone).toBe(true);
      expect(chunks[0].choices[0].delta).toEqual({ role: "assistant", content: "" });
      expect(contentOf(chunks)).toBe(plain);
      expect(chunks.flatMap((chunk) => chunk.choices).filter((choice) => choice.finish_reason !== null)).toHaveLength(1);
      expect(chunks.at(-1).choices[0]).toMatchObject({ finish_reason: "length", delta: { content: expect.stringMatching(/./) } });
      expect(new Set(chunks.map(({ id, object, created, model }) => JSON.stringify([id, object, created, model]))).size).toBe(1);
      expect(chunks[0].object).toBe("chat.completion.chunk");
    },
  },
  {
    number: 82,
    title: "sends usage on request, in a final chunk without choices",
    fields: ["stream_options"],
    run: async (target) => {
      const { usage } = await target.complete(SAY);
      const without = await target.stream({ ...SAY, stream_options: { include_usage: false } });
      expect(without.chunks.every((chunk) => !("usage" in chunk))).toBe(true);
      const { chunks } = await target.stream({ ...SAY, stream_options: { include_usage: true } });
      expect(chunks.at(-1)).toMatchObject({ choices: [], usage: { completion_tokens: 24, total_tokens: usage.total_tokens } });
      expect(chunks.slice(0, -1).every((chunk) => !("usage" in chunk))).toBe(true);
    },
  },
  {
    number: 84,
    title: "rejects stream options without a stream, even if empty; in a stream an empty object requests usage",
    fields: ["stream_options", "stream"],
    run: async (target) => {
      for (const stream_options of [{ include_usage: true }, { include_usage: null }])
        expect(await target.refused({ stream: false, stream_options })).toMatchObject({ status: 400, param: "stream_options" });
      const { chunks } = await target.stream({ ...SAY, stream_options: {} });
      expect(chunks.at(-1)).toMatchObject({ choices: [], usage: { completion_tokens: 24 } });
    },
  },
  {
    number: 85,
    title: "a server with this option always sends usage at the end",
    fields: ["stream"],
    needs: { server: "open", because: "usage in every stream" },
    run: async (target) => {
      const { chunks } = await target.stream(SAY);
      expect(chunks.at(-1)).toMatchObject({ choices: [], usage: { completion_tokens: 24 } });
      expect(chunks.slice(0, -1).every((chunk) => !("usage" in chunk))).toBe(true);
    },
  },
  {
    number: 86,
    title: "returns token ids on request, of the prompt and of all sampled tokens",
    fields: ["return_token_ids"],
    run: async (target) => {
      const whole = await target.complete({ seed: 5, max_tokens: 24, return_token_ids: true, logprobs: true });
      expect(whole.prompt_token_ids).toHaveLength(whole.usage.prompt_tokens);
      const [{ token_ids: ids, logprobs }] = whole.choices;
      expect(ids).toHaveLength(whole.usage.completion_tokens);
      expect(logprobs.content).toHaveLength(ids.length);
      for (const return_token_ids of [false, null]) {
        const without = await target.complete({ return_token_ids, max_tokens: 1 });
        expect([without.prompt_token_ids, without.choices[0].token_ids]).toEqual([null, null]);
      }
      const { chunks } = await target.stream({ seed: 5, max_tokens: 24, return_token_ids: true });
      expect(chunks[0].prompt_token_ids).toEqual(whole.prompt_token_ids);
      expect(chunks.slice(1).every((chunk) => !chunk.prompt_token_ids)).toBe(true);
      expect(chunks.flatMap((chunk) => chunk.choices.flatMap((choice: any) => choice.token_ids ?? []))).toEqual(ids);
    },
  },
  {
    number: 88,
    title: "shows tokens as token ids on request",
    fields: ["return_tokens_as_token_ids", "logprobs"],
    run: async (target) => {
      const body = { ...SAY, logprobs: true, top_logprobs: 1, return_token_ids: true };
      const choice = await target.choice({ ...body, return_tokens_as_token_ids: true });
      expect(choice.logprobs.content.map((entry: any) => entry.token)).toEqual(choice.token_ids.map((id: number) => `token_id:${id}`));
      for (const { top_logprobs: top } of choice.logprobs.content) expect(top[0].token).toMatch(/^token_id:\d+$/);
    },
  },
  {
    number: 88,
    title: "a server with this option shows tokens as token ids by default",
    fields: ["logprobs"],
    needs: { server: "open", because: "tokens named by their ids by default" },
    run: async (target) => {
      const choice = await target.choice({ max_tokens: 2, logprobs: true });
      expect(choice.logprobs.content[0].token).toMatch(/^token_id:\d+$/);
    },
  },
  {
    number: 89,
    title: "answers an engine failure with 500 and no details, or an error event and [DONE]",
    needs: parrot("an engine that fails on request"),
    run: async (target) => {
      const error = { type: "InternalServerError", message: "Internal server error", code: 500 };
      for (const content of ["fail:", "break:"]) {
        const body = { messages: [{ role: "user", content }] };
        expect(await target.refused(body)).toMatchObject({ status: 500, ...error });
        const { chunks, isDone } = await target.stream(body);
        expect(isDone).toBe(true);
        expect(chunks.at(-1).error).toMatchObject(error);
        expect(chunks.flatMap((chunk) => chunk.choices ?? []).every((choice) => choice.finish_reason === null)).toBe(true);
      }
    },
  },
  {
    number: 90,
    title: "the first card in the list of models is its own root",
    run: async (target) => {
      const list: any = await (await target.get("/v1/models")).json();
      expect(list.object).toBe("list");
      for (const card of list.data)
        expect(card).toMatchObject({ id: expect.any(String), object: "model", created: expect.any(Number), owned_by: expect.any(String) });
      expect(list.data[0].root).toEqual(expect.any(String));
    },
  },
  {
    number: 92,
    title: "a server without priority scheduling rejects a priority",
    fields: ["priority"],
    run: async (target) => {
      expect(await target.refused({ priority: 1 })).toMatchObject({ status: 400, type: "BadRequestError" });
      await target.complete({ priority: 0, max_tokens: 1 });
    },
  },
  {
    number: 92,
    title: "a server with priority scheduling accepts it, also below 0",
    fields: ["priority"],
    needs: { server: "open", because: "priority scheduling" },
    run: async (target) => {
      for (const priority of [1, -5]) await target.complete({ priority, max_tokens: 1 });
    },
  },
  {
    number: 93,
    title: `no body causes a server error, a timeout or a leaked slot: ${FUZZ_RUNS} random bodies`,
    timeoutMs: 60_000 + FUZZ_RUNS * 100,
    run: (target) => fuzz(target),
  },
  {
    number: 115,
    title: "continuous usage counts the tokens of each choice",
    fields: ["stream_options", "n"],
    run: async (target) => {
      const { chunks } = await target.stream({ ...SAY, n: 2, stream_options: { include_usage: true, continuous_usage_stats: true } });
      expect(chunks.every((chunk) => typeof chunk.usage.completion_tokens === "number")).toBe(true);
      expect(chunks[0].usage.completion_tokens).toBe(0);
      for (const chunk of chunks.slice(0, -1)) expect(chunk.usage.completion_tokens).toBeLessThanOrEqual(24);
      expect(chunks.at(-1).usage.completion_tokens).toBe(48);
    },
  },
  {
    number: 116,
    title: "a plain answer has every field of the schema, with null for unused fields",
    run: async (target) => {
      const body = await target.complete({ max_tokens: 4 });
      expect(body).toMatchObject({
        object: "chat.completion",
        service_tier: null,
        system_fingerprint: null,
        prompt_logprobs: null,
        prompt_token_ids: null,
        kv_transfer_params: null,
        choices: [
          {
            index: 0,
            message: {
              role: "assistant",
              refusal: null,
              annotations: null,
              audio: null,
              function_call: null,
              tool_calls: [],
              reasoning: null,
            },
            logprobs: null,
            stop_reason: null,
            token_ids: null,
          },
        ],
      });
      expect(body.usage).toHaveProperty("prompt_tokens_details");
    },
  },
  {
    number: 117,
    title: "accepts numbers, integers and booleans as strings",
    fields: ["temperature", "max_tokens", "stream", "ignore_eos", "n"],
    run: async (target) => {
      const body = { temperature: "0", max_tokens: "3", ignore_eos: "yes", n: true, stream: "off", top_k: 2.0 };
      expect((await target.complete(body)).usage.completion_tokens).toBe(3);
      expect(await target.refused({ max_tokens: 2.5 })).toMatchObject({ status: 400, type: "Bad Request" });
    },
  },
  {
    number: 120,
    title: "null means absent if the schema allows it, and is rejected otherwise",
    fields: ["seed", "stop", "tools", "logit_bias", "echo", "min_tokens", "bad_words", "ignore_eos"],
    run: async (target) => {
      const nullable = [
        "temperature",
        "seed",
        "stop",
        "tools",
        "tool_choice",
        "logit_bias",
        "top_k",
        "max_tokens",
        "n",
        "logprobs",
        "stream",
      ];
      await target.complete({ ...Object.fromEntries(nullable.map((field) => [field, null])), max_completion_tokens: 2 });
      for (const field of [
        "echo",
        "min_tokens",
        "bad_words",
        "ignore_eos",
        "length_penalty",
        "priority",
        "request_id",
        "skip_special_tokens",
      ])
        expect(await target.refused({ [field]: null, max_tokens: 1 }), field).toMatchObject({
          status: 400,
          type: "Bad Request",
          param: null,
        });
    },
  },
  {
    number: 118,
    title: "accepts a trailing slash in the path",
    run: async (target) => {
      expect(
        (await target.send({ messages: [{ role: "user", content: "hi" }], max_tokens: 1 }, { path: "/v1/chat/completions/" })).status,
      ).toBe(200);
    },
  },
  {
    number: 119,
    title: "answers requests over its limit with 429 and Retry-After; a disconnected client releases its capacity",
    fields: ["n"],
    needs: { server: "small", because: "room for two choices, and a model that waits" },
    run: async (target) => {
      const client = new AbortController();
      const body = { messages: [{ role: "user", content: "hang:" }], n: 2 };
      // A request of the loop below may have used the capacity first; then this one is retried.
      const waiting = (async () => {
        while (!client.signal.aborted) await target.send(body, { signal: client.signal }).catch(() => null);
      })();
      await vi.waitFor(async () => {
        const refused = await target.send({ n: 1 });
        expect([refused.status, refused.headers.get("retry-after")]).toEqual([429, expect.stringMatching(/^\d+$/)]);
      }, SOON);
      client.abort();
      await waiting;
      await vi.waitFor(async () => expect((await target.send({ n: 2 })).status).toBe(200), SOON);
    },
  },
];
