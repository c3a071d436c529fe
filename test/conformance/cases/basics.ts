/** Cases 1 to 30: log-probabilities, length, model, messages, seed, authorization. */
import { expect } from "vitest";
import type { ConformanceCase } from "../case.ts";
import { contextLength } from "../facts.ts";

/** Returns a request body as text, for numbers that JavaScript would round. */
const withLiteral = (member: string): string => `{"messages":[{"role":"user","content":"hello"}],"max_tokens":1,${member}}`;
const entriesOf = (choice: any): any[] => choice.logprobs.content;

export const basics: readonly ConformanceCase[] = [
  {
    number: 1,
    title: "logprobs false gives null",
    fields: ["logprobs"],
    run: async (target) => expect((await target.choice({ logprobs: false, max_tokens: 4 })).logprobs).toBeNull(),
  },
  {
    number: 2,
    title: "logprobs with no alternatives lists every token",
    fields: ["logprobs", "top_logprobs"],
    run: async (target) => {
      const { choices, usage } = await target.complete({ logprobs: true, top_logprobs: 0, max_tokens: 8 });
      expect(entriesOf(choices[0])).toHaveLength(usage.completion_tokens);
      for (const entry of entriesOf(choices[0])) expect(entry.top_logprobs).toEqual([]);
    },
  },
  {
    number: 3,
    title: "five alternatives, greedy: exactly five with each token, the sampled one first",
    fields: ["top_logprobs", "temperature"],
    run: async (target) => {
      const choice = await target.choice({ logprobs: true, top_logprobs: 5, temperature: 0, max_tokens: 8 });
      for (const { token, logprob, top_logprobs: top } of entriesOf(choice)) {
        expect(top).toHaveLength(5);
        expect(top[0]).toMatchObject({ token, logprob });
        expect(top.map((each: any) => each.logprob)).toEqual(
          top.map((each: any) => each.logprob).toSorted((a: number, b: number) => b - a),
        );
      }
    },
  },
  {
    number: 4,
    title: "rejects more alternatives than the bound, and continues to serve",
    fields: ["top_logprobs"],
    run: async (target) => {
      expect(await target.refused({ logprobs: true, top_logprobs: 30 })).toMatchObject({ status: 400 });
      await target.complete({ max_tokens: 1 });
    },
  },
  {
    number: 5,
    title: "rejects them in a stream with an error, or with an error event and [DONE]",
    fields: ["top_logprobs", "stream"],
    run: async (target) => expect(await target.refused({ logprobs: true, top_logprobs: 21, stream: true })).toMatchObject({ status: 400 }),
  },
  {
    number: 6,
    title: "rejects alternatives without log-probabilities",
    fields: ["top_logprobs"],
    run: async (target) => expect(await target.refused({ top_logprobs: 3 })).toMatchObject({ status: 400, param: "top_logprobs" }),
  },
  {
    number: 7,
    title: "rejects fewer than -1 alternatives",
    fields: ["top_logprobs"],
    run: async (target) => expect(await target.refused({ logprobs: true, top_logprobs: -2 })).toMatchObject({ status: 400 }),
  },
  {
    number: 8,
    title: '-1 lists the whole vocabulary if the bound allows it; logprobs accepts the string "true"',
    fields: ["top_logprobs", "logprobs"],
    needs: { server: "open", because: "a bound on top_logprobs as large as the vocabulary" },
    run: async (target) => {
      const [entry] = entriesOf(await target.choice({ logprobs: "true", top_logprobs: -1, max_tokens: 1 }));
      const total = entry.top_logprobs.reduce((sum: number, { logprob }: any) => sum + Math.exp(logprob), 0);
      expect(Math.abs(total - 1)).toBeLessThan(1e-4);
      const names = new Set(entry.top_logprobs.map((each: any) => each.token));
      expect(names.size).toBe(entry.top_logprobs.length);
      const { message } = await target.refused({ logit_bias: { 99999999: 1 } });
      expect(message).toContain(String(names.size));
    },
  },
  {
    number: 9,
    title: "prompt_logprobs: one entry per token, the first null; omitted means null; -1 exceeds the bound",
    fields: ["prompt_logprobs"],
    run: async (target) => {
      for (const prompt_logprobs of [0, 1]) {
        const { prompt_logprobs: entries, usage } = await target.complete({ prompt_logprobs, max_tokens: 1 });
        expect(entries).toHaveLength(usage.prompt_tokens);
        expect(entries[0]).toBeNull();
        for (const entry of entries.slice(1)) {
          const all = Object.values<any>(entry);
          expect(all.length).toBeGreaterThanOrEqual(1);
          expect(all.length).toBeLessThanOrEqual(prompt_logprobs + 1);
          for (const each of all)
            expect(each).toEqual({ logprob: expect.any(Number), rank: expect.any(Number), decoded_token: expect.any(String) });
        }
      }
      expect((await target.complete({ max_tokens: 1 })).prompt_logprobs).toBeNull();
      expect(await target.refused({ prompt_logprobs: -1 })).toMatchObject({ status: 400, param: "prompt_logprobs" });
    },
  },
  {
    number: 12,
    title: "the sampled token is the first alternative, even if it is not among the most likely",
    fields: ["top_logprobs", "temperature"],
    run: async (target) => {
      const { choices } = await target.complete({ logprobs: true, top_logprobs: 2, temperature: 2, n: 8, seed: 3, max_tokens: 8 });
      const entries: any[] = choices.flatMap(entriesOf);
      for (const { token, logprob, top_logprobs: top } of entries) {
        expect(top).toHaveLength(2);
        expect(top[0]).toMatchObject({ token, logprob });
      }
      expect(entries.some(({ top_logprobs: [first, second] }) => first.logprob < second.logprob)).toBe(true);
    },
  },
  {
    number: 13,
    title: "max_completion_tokens ends the output with length, and usage adds up",
    fields: ["max_completion_tokens", "ignore_eos"],
    run: async (target) => {
      const { choices, usage } = await target.complete({ max_completion_tokens: 5, ignore_eos: true });
      expect(choices[0]).toMatchObject({ finish_reason: "length", stop_reason: null, message: { role: "assistant" } });
      expect(usage.completion_tokens).toBe(5);
      expect(usage.total_tokens).toBe(usage.prompt_tokens + 5);
    },
  },
  {
    number: 14,
    title: "max_completion_tokens takes precedence over max_tokens",
    fields: ["max_completion_tokens", "max_tokens"],
    run: async (target) =>
      expect((await target.complete({ max_completion_tokens: 3, max_tokens: 9, ignore_eos: true })).usage.completion_tokens).toBe(3),
  },
  {
    number: 15,
    title: "rejects a limit of 0",
    fields: ["max_tokens"],
    run: async (target) => expect(await target.refused({ max_tokens: 0 })).toMatchObject({ status: 400, param: "max_tokens" }),
  },
  {
    number: 16,
    title: "without a limit uses the rest of the context",
    fields: ["max_tokens", "truncate_prompt_tokens"],
    run: async (target) => {
      const whole = await contextLength(target);
      const body = { messages: [{ role: "user", content: "a b ".repeat(whole) }], truncate_prompt_tokens: whole - 7, ignore_eos: true };
      const { usage, choices } = await target.complete(body);
      expect(usage).toMatchObject({ prompt_tokens: whole - 7, completion_tokens: 7 });
      expect(choices[0].finish_reason).toBe("length");
    },
  },
  {
    number: 18,
    title: "rejects a prompt and limit that exceed the context",
    fields: ["max_tokens"],
    run: async (target) => {
      const { status, message } = await target.refused({ max_tokens: (await contextLength(target)) - 1 });
      expect(status).toBe(400);
      expect(message).toContain("context length");
    },
  },
  {
    number: 19,
    title: "rejects a prompt as long as the context, with a limit of 1 and without",
    fields: ["max_tokens", "truncate_prompt_tokens"],
    run: async (target) => {
      const whole = await contextLength(target);
      const body = { messages: [{ role: "user", content: "a b ".repeat(whole) }], truncate_prompt_tokens: whole };
      for (const limit of [{ max_tokens: 1 }, {}]) expect(await target.refused({ ...body, ...limit })).toMatchObject({ status: 400 });
    },
  },
  {
    number: 20,
    title: "an empty, null or absent model is the first listed model",
    fields: ["model"],
    run: async (target) => {
      const list: any = await (await target.get("/v1/models")).json();
      for (const body of [{ model: "" }, { model: null }, {}])
        expect((await target.complete({ ...body, max_tokens: 1 })).model).toBe(list.data[0].id);
      expect((await target.complete({ model: list.data[0].id, max_tokens: 1 })).model).toBe(list.data[0].id);
    },
  },
  {
    number: 21,
    title: "answers an unknown model with 404 and its name",
    fields: ["model"],
    run: async (target) =>
      expect(await target.refused({ model: "no/such/model" })).toMatchObject({
        status: 404,
        type: "NotFoundError",
        param: "model",
        code: 404,
        message: expect.stringMatching(/no\/such\/model.*does not exist/),
      }),
  },
  {
    number: 22,
    title: "accepts unknown fields of messages and bodies",
    fields: ["messages"],
    run: async (target) => {
      await target.complete({ messages: [{ role: "user", content: "hi", mood: "good" }], max_tokens: 1 });
      await target.complete({ surely_unknown: { a: [1] }, max_tokens: 1 });
    },
  },
  {
    number: 23,
    title: "a text part is equivalent to a string",
    fields: ["messages", "return_token_ids"],
    run: async (target) => {
      const promptOf = async (content: unknown): Promise<number[]> =>
        (await target.complete({ messages: [{ role: "user", content }], return_token_ids: true, max_tokens: 1 })).prompt_token_ids;
      expect(await promptOf([{ type: "text", text: "one two" }])).toEqual(await promptOf("one two"));
    },
  },
  {
    number: 24,
    title: "accepts a custom role, with a string and with parts",
    fields: ["messages"],
    run: async (target) => {
      const textOf = (content: unknown): Promise<string> =>
        target.text({ messages: [{ role: "narrator", content }], temperature: 0, max_tokens: 8 });
      expect(await textOf([{ type: "text", text: "one two" }])).toBe(await textOf("one two"));
    },
  },
  {
    number: 25,
    title: "reads a seed from its digits, without rounding",
    fields: ["seed"],
    run: async (target) => {
      await target.complete({ seed: 1, max_tokens: 1 });
      for (const seed of ["9223372036854775808", "-9223372036854775809"])
        expect(await target.refused(withLiteral(`"seed":${seed}`))).toMatchObject({ status: 400, type: "Bad Request" });
      for (const seed of ["9223372036854775807", "-9223372036854775808"])
        expect((await target.send(withLiteral(`"seed":${seed}`))).status).toBe(200);
    },
  },
  {
    number: 26,
    title: "the same seed gives the same text, and another seed another text",
    fields: ["seed"],
    run: async (target) => {
      const say = (seed: number): Promise<string> => target.text({ seed, temperature: 1, max_tokens: 24, ignore_eos: true });
      const first = await say(42);
      expect(await say(42)).toBe(first);
      expect(await say(43)).not.toBe(first);
    },
  },
  {
    number: 27,
    title: "an image in a system message matches the schema; an empty system text is accepted",
    fields: ["messages"],
    run: async (target) => {
      const system = (content: unknown) => ({
        messages: [
          { role: "system", content },
          { role: "user", content: "hi" },
        ],
        max_tokens: 1,
      });
      await target.complete(system(""));
      const response = await target.send(system([{ type: "image_url", image_url: { url: "data:image/png;base64,AA==" } }]));
      const body: any = await response.json();
      // A text-only model still rejects the image.
      if (response.status !== 200) expect([response.status, body.error.type]).toEqual([400, "BadRequestError"]);
    },
  },
  {
    number: 28,
    title: "requires a key on every route except /health",
    run: async (target) => {
      for (const key of ["wrong", null]) {
        expect((await target.send({ max_tokens: 1 }, { key })).status).toBe(401);
        expect((await target.get("/v1/models", { key })).status).toBe(401);
        expect((await target.get("/health", { key })).status).toBe(200);
      }
      expect((await target.send({ max_tokens: 1 })).status).toBe(200);
    },
  },
  {
    number: 29,
    title: "the id is the request's; the header takes precedence; otherwise it is created",
    fields: ["request_id"],
    run: async (target) => {
      expect((await target.complete({ request_id: "abc", max_tokens: 1 })).id).toBe("chatcmpl-abc");
      const { id } = await target.complete({ request_id: "abc", max_tokens: 1 }, { headers: { "x-request-id": "xyz" } });
      expect(id).toBe("chatcmpl-xyz");
      expect((await target.complete({ max_tokens: 1 })).id).toMatch(/^chatcmpl-[0-9a-f]{16}$/);
    },
  },
  {
    number: 29,
    title: "a server with this option sends the request id header",
    fields: ["request_id"],
    needs: { server: "open", because: "answers with the header x-request-id" },
    run: async (target) => {
      const given = await target.send({ request_id: "abc", max_tokens: 1 }, { headers: { "x-request-id": "xyz" } });
      expect(given.headers.get("x-request-id")).toBe("xyz");
      expect((await target.send({ max_tokens: 1 })).headers.get("x-request-id")).toMatch(/^[0-9a-f]{32}$/);
    },
  },
  {
    number: 30,
    title: "rejects malformed JSON and other media types",
    run: async (target) => {
      for (const body of ["", "{", "[]", "null", '"text"'])
        expect(await target.refused(body), body).toMatchObject({ status: 400, type: "Bad Request" });
      expect(await target.refused({}, { headers: { "content-type": "text/plain" } })).toMatchObject({ status: 400 });
    },
  },
];
