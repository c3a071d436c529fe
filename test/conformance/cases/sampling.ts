/** Cases 31 to 46: choices, greedy sampling, sampling parameters, and logit fields. */
import { expect } from "vitest";
import type { ConformanceCase } from "../case.ts";
import { encodingOf, endToken, greedySample, steadySample, variety, vocabularySize } from "../facts.ts";
import { CONFIGURED } from "../servers.ts";

const contentsOf = (choices: readonly any[]): string[] => choices.map((choice) => choice.message.content);

export const sampling: readonly ConformanceCase[] = [
  {
    number: 31,
    title: "three choices come in order and differ",
    fields: ["n", "temperature"],
    run: async (target) => {
      const { choices } = await target.complete({ n: 3, temperature: 0.7, seed: 5, max_tokens: 24, ignore_eos: true });
      expect(choices.map((choice: any) => choice.index)).toEqual([0, 1, 2]);
      expect(new Set(contentsOf(choices)).size).toBeGreaterThan(1);
    },
  },
  {
    number: 32,
    title: "streams content and one finish reason for each choice",
    fields: ["n", "stream"],
    run: async (target) => {
      const { chunks, isDone } = await target.stream({ n: 2, seed: 5, max_tokens: 24, ignore_eos: true });
      expect(isDone).toBe(true);
      for (const index of [0, 1]) {
        const parts = chunks.flatMap((chunk) => chunk.choices).filter((choice) => choice.index === index);
        expect(parts.map((part) => part.delta.content ?? "").join("")).not.toBe("");
        expect(parts.filter((part) => part.finish_reason !== null)).toHaveLength(1);
      }
    },
  },
  {
    number: 33,
    title: "choice 1 equals the output of the next seed",
    fields: ["n", "seed"],
    run: async (target) => {
      const body = { temperature: 1, max_tokens: 16, ignore_eos: true };
      const { choices } = await target.complete({ ...body, n: 2, seed: 42 });
      expect(contentsOf(choices)).toEqual([await target.text({ ...body, seed: 42 }), await target.text({ ...body, seed: 43 })]);
    },
  },
  {
    number: 34,
    title: "rejects n 0, and several greedy choices",
    fields: ["n", "temperature"],
    run: async (target) => {
      for (const body of [{ n: 0 }, { n: 2, temperature: 0 }])
        expect(await target.refused(body)).toMatchObject({ status: 400, type: "BadRequestError" });
    },
  },
  {
    number: 35,
    title: "rejects numbers outside their ranges",
    fields: ["temperature", "top_p", "top_k", "min_p", "repetition_penalty", "presence_penalty"],
    run: async (target) => {
      for (const [body, param] of [
        [{ temperature: -1 }, "temperature"],
        [{ top_p: 0 }, "top_p"],
        [{ top_k: -2 }, null],
        [{ min_p: 1.1 }, null],
        [{ repetition_penalty: 0 }, null],
        [{ presence_penalty: 2.5 }, null],
      ] as const)
        expect(await target.refused(body), JSON.stringify(body)).toMatchObject({ status: 400, type: "BadRequestError", param });
    },
  },
  {
    number: 36,
    title: "uses the defaults of the model",
    fields: ["temperature", "model"],
    needs: { server: "open", because: "a model whose generation config has temperature 0.5 and four new tokens" },
    run: async (target) => {
      const body = { model: CONFIGURED, n: 32, seed: 1, ignore_eos: true };
      const absent = contentsOf((await target.complete(body)).choices);
      expect(contentsOf((await target.complete({ ...body, temperature: 0.5, max_tokens: 4 })).choices)).toEqual(absent);
      expect(contentsOf((await target.complete({ ...body, temperature: 1 })).choices)).not.toEqual(absent);
      const greedy = await Promise.all([1, 2, 3].map((seed) => target.text({ ...body, n: 1, seed, temperature: 0 })));
      expect(new Set(greedy).size).toBe(1);
    },
  },
  {
    number: 38,
    title: "a positive presence penalty makes previous tokens less likely, a negative one more likely",
    fields: ["presence_penalty"],
    run: async (target) => {
      const free = await variety(target, {});
      expect(await variety(target, { presence_penalty: 2 })).toBeGreaterThan(free + 0.02);
      expect(await variety(target, { presence_penalty: -2 })).toBeLessThan(free - 0.02);
    },
  },
  {
    number: 39,
    title: "with two allowed tokens a frequency penalty balances their counts, and a negative one repeats one of them",
    fields: ["frequency_penalty", "allowed_token_ids"],
    run: async (target) => {
      const choice = await target.choice({ logprobs: true, top_logprobs: 2, temperature: 0, max_tokens: 24, return_token_ids: true });
      const two = [...new Set<number>(choice.token_ids)].slice(0, 2);
      const body = { allowed_token_ids: two, temperature: 0, max_tokens: 48, ignore_eos: true, return_token_ids: true };
      const countOf = (ids: readonly number[]): number => ids.filter((id) => id === two[0]).length;
      const { token_ids: balanced } = await target.choice({ ...body, frequency_penalty: 2 });
      expect(countOf(balanced)).toBeGreaterThan(12);
      expect(countOf(balanced)).toBeLessThan(36);
      const { token_ids: stuck } = await target.choice({ ...body, frequency_penalty: -2 });
      expect([0, 1, 47, 48]).toContain(countOf(stuck));
    },
  },
  {
    number: 40,
    title: "a repetition penalty makes tokens of prompt and output less likely, one below 1 more likely",
    fields: ["repetition_penalty"],
    run: async (target) => {
      const free = await variety(target, {});
      expect(await variety(target, { repetition_penalty: 1.9 })).toBeGreaterThan(free + 0.02);
      expect(await variety(target, { repetition_penalty: 0.1 })).toBeLessThan(free - 0.02);
    },
  },
  {
    number: 41,
    title: "samples only allowed tokens; rejects an empty list, and an id outside the vocabulary",
    fields: ["allowed_token_ids"],
    run: async (target) => {
      const [id] = (await greedySample(target)).ids;
      const { token_ids: ids } = await target.choice({ allowed_token_ids: [id], max_tokens: 6, ignore_eos: true, return_token_ids: true });
      expect(ids).toEqual(Array(6).fill(id));
      for (const allowed_token_ids of [[], [-1], [10_000_000]])
        expect(await target.refused({ allowed_token_ids })).toMatchObject({ status: 400, param: "allowed_token_ids" });
    },
  },
  {
    number: 42,
    title: "never samples bad words, including words of several tokens",
    fields: ["bad_words"],
    run: async (target) => {
      const { ids, tokens, body } = await steadySample(target);
      const sequences: number[][] = [];
      for (let at = 0; at + 1 < ids.length && sequences.length < 4; at++) {
        for (const length of [1, 2]) {
          const sequence = ids.slice(at, at + length);
          const word = tokens.slice(at, at + length).join("");
          // A text can be banned only if the encoder produces the ids that the model sampled.
          if (word.trim() !== word || (await encodingOf(target, word)).join() !== sequence.join()) continue;
          sequences.push(sequence);
          const choice = await target.choice({ ...body, bad_words: [word] });
          expect(`,${choice.token_ids.join()},`).not.toContain(`,${sequence.join()},`);
        }
      }
      expect(new Set(sequences.map((sequence) => sequence.length))).toEqual(new Set([1, 2]));
    },
  },
  {
    number: 43,
    title: "a bias of 100 decides, and larger values count as 100; ids outside the vocabulary are rejected by name",
    fields: ["logit_bias"],
    run: async (target) => {
      const size = await vocabularySize(target);
      const id = (await greedySample(target)).ids.at(-1)!;
      for (const bias of [100, 1000]) {
        const body = { logit_bias: { [id]: bias }, temperature: 0, max_tokens: 6, ignore_eos: true, return_token_ids: true };
        expect((await target.choice(body)).token_ids).toEqual(Array(6).fill(id));
      }
      const { status, param, message } = await target.refused({ logit_bias: { [size + 1]: 1 } });
      expect([status, param]).toEqual([400, "logit_bias"]);
      for (const number of [size, size + 1]) expect(message).toContain(String(number));
      await target.complete({ logit_bias: { [size - 1]: 1 }, max_tokens: 1 });
    },
  },
  {
    number: 44,
    title: "rejects a bias on an invalid id",
    fields: ["logit_bias"],
    run: async (target) => expect(await target.refused({ logit_bias: { abc: 1 } })).toMatchObject({ status: 400 }),
  },
  {
    number: 46,
    title: "log-probabilities are computed before temperature and bias",
    fields: ["logprobs", "temperature", "logit_bias"],
    run: async (target) => {
      const first = async (body: object): Promise<number> =>
        (await target.choice({ logprobs: true, max_tokens: 1, ...body })).logprobs.content[0].logprob;
      const [id] = (await greedySample(target)).ids;
      const raw = await first({ temperature: 0 });
      for (const body of [
        { allowed_token_ids: [id], temperature: 1.7 },
        { logit_bias: { [id!]: 100 }, temperature: 0.3 },
      ])
        expect(Math.abs((await first(body)) - raw)).toBeLessThan(1e-4);
    },
  },
  {
    number: 100,
    title: "top_p near 0 and top_k 1 keep only the most likely token, at any temperature",
    fields: ["top_p", "top_k"],
    run: async (target) => {
      const { text } = await greedySample(target);
      for (const body of [{ top_p: 1e-6 }, { top_k: 1 }, { top_k: 1, top_p: 0.1, min_p: 0.5 }])
        expect(await target.text({ ...body, temperature: 1.5, seed: 9, max_tokens: 24, ignore_eos: true })).toBe(text);
      for (const top_k of [0, -1, 10_000_000]) await target.complete({ top_k, max_tokens: 1 });
    },
  },
  {
    number: 101,
    title: "min_p 1 keeps only the most likely token",
    fields: ["min_p"],
    run: async (target) => {
      const { text } = await greedySample(target);
      expect(await target.text({ min_p: 1, temperature: 1.5, seed: 9, max_tokens: 24, ignore_eos: true })).toBe(text);
    },
  },
  {
    number: 102,
    title: "a temperature of 1e-6 is raised, so that several choices are accepted; 0 ignores the seed",
    fields: ["temperature", "n"],
    run: async (target) => {
      expect((await target.complete({ temperature: 1e-6, n: 2, max_tokens: 2 })).choices).toHaveLength(2);
      expect(await target.text({ temperature: 0, seed: 1, max_tokens: 8 })).toBe(
        await target.text({ temperature: 0, seed: 2, max_tokens: 8 }),
      );
    },
  },
  {
    number: 103,
    title: "beam search: returns the best outputs, best first, also at temperature 0; the best is at least as likely as the greedy output",
    fields: ["use_beam_search", "n"],
    run: async (target) => {
      const body = { max_tokens: 4, ignore_eos: true, logprobs: true, temperature: 0 };
      const { choices, usage } = await target.complete({ ...body, use_beam_search: true, n: 3 });
      const total = (choice: any): number => choice.logprobs.content.reduce((sum: number, { logprob }: any) => sum + logprob, 0);
      const totals = choices.map(total);
      expect(totals).toEqual(totals.toSorted((a: number, b: number) => b - a));
      expect(totals[0]).toBeGreaterThanOrEqual(total(await target.choice(body)) - 1e-4);
      expect(usage.completion_tokens).toBe(12);
      expect(await target.refused({ use_beam_search: true, n: 11 })).toMatchObject({ status: 400 });
    },
  },
  {
    number: 104,
    title: "length_penalty ranks beams: a large value prefers longer outputs, a negative one shorter",
    fields: ["length_penalty", "use_beam_search"],
    run: async (target) => {
      const end = await endToken(target);
      const lengths = async (length_penalty: number): Promise<number[]> => {
        const body = { use_beam_search: true, n: 6, max_tokens: 5, length_penalty, return_token_ids: true };
        const { choices } = await target.complete({ ...body, messages: [{ role: "user", content: "" }] });
        expect(choices.every((choice: any) => !choice.token_ids.includes(end))).toBe(true);
        return choices.map((choice: any) => choice.token_ids.length);
      };
      const mean = (values: readonly number[]): number => values.reduce((sum, value) => sum + value, 0) / values.length;
      expect(mean(await lengths(20))).toBeGreaterThan(mean(await lengths(-20)));
      await target.complete({ length_penalty: 0.5, max_tokens: 1 });
    },
  },
];
