/** Cases 47 to 59: conditions that end an output, and its text. */
import { expect } from "vitest";
import type { ConformanceCase } from "../case.ts";
import { parrot } from "../case.ts";
import { endToken, greedySample, steadySample, type Sample } from "../facts.ts";
import type { Target } from "../target.ts";

type Steady = Awaited<ReturnType<typeof steadySample>>;

/** Expects a stop string to end an output before its first occurrence, or directly after it. */
async function expectStop(target: Target, sample: Steady, stop: string): Promise<void> {
  const before = sample.text.slice(0, sample.text.indexOf(stop));
  for (const [include_stop_str_in_output, content] of [
    [false, before],
    [true, before + stop],
  ] as const) {
    const choice = await target.choice({ ...sample.body, stop, include_stop_str_in_output });
    expect(choice).toMatchObject({ message: { content }, finish_reason: "stop", stop_reason: stop });
    expect(choice.token_ids).toEqual(sample.ids.slice(0, choice.token_ids.length));
  }
}

/** Returns a token boundary at which a string across it occurs for the first time. */
function spanning({ text, tokens }: Sample): string {
  let at = 0;
  for (const [index, token] of tokens.slice(0, -1).entries()) {
    at += token.length;
    if (index < 3) continue;
    const stop = text.slice(at - 1, at + 1);
    if (stop.trim().length === 2) return stop;
  }
  throw new Error(`Expected two letters in a row in ${JSON.stringify(text)}`);
}

export const stopping: readonly ConformanceCase[] = [
  {
    number: 47,
    title: "a stop string cuts the text before it, or after it on request",
    fields: ["stop", "include_stop_str_in_output"],
    run: async (target) => {
      const sample = await steadySample(target);
      await expectStop(target, sample, sample.text.trim().at(5)!);
    },
  },
  {
    number: 48,
    title: "matches a stop string across several tokens, and within one",
    fields: ["stop", "include_stop_str_in_output"],
    run: async (target) => {
      const sample = await steadySample(target);
      await expectStop(target, sample, spanning(sample));
      const long = sample.tokens.find((token) => token.trim().length >= 2);
      if (long !== undefined) await expectStop(target, sample, long.trim().slice(1));
    },
  },
  {
    number: 49,
    title: "stop tokens in any order: the first sampled one ends the output, stays in token_ids and is the stop reason",
    fields: ["stop_token_ids", "include_stop_str_in_output"],
    run: async (target) => {
      const { ids, tokens, body } = await steadySample(target);
      const [a, b] = [ids.at(6)!, ids.at(9)!];
      for (const stop_token_ids of [
        [a, b],
        [b, a],
      ]) {
        const at = ids.findIndex((id) => stop_token_ids.includes(id));
        const choice = await target.choice({ ...body, stop_token_ids });
        expect(choice).toMatchObject({ finish_reason: "stop", stop_reason: ids[at], token_ids: ids.slice(0, at + 1) });
        expect(choice.message.content).toBe(tokens.slice(0, at).join(""));
        const kept = await target.choice({ ...body, stop_token_ids, include_stop_str_in_output: true });
        expect(kept.message.content).toBe(tokens.slice(0, at + 1).join(""));
      }
    },
  },
  {
    number: 50,
    title: "the end token of the model gives finish reason stop and no stop reason",
    fields: ["logit_bias"],
    run: async (target) => {
      const end = await endToken(target);
      expect(await target.choice({ logit_bias: { [end]: 100 }, temperature: 0, return_token_ids: true })).toMatchObject({
        finish_reason: "stop",
        stop_reason: null,
        token_ids: [end],
        message: { content: "" },
      });
    },
  },
  {
    number: 51,
    title: "ignore_eos continues after the end token, which is text only if special tokens are shown",
    fields: ["ignore_eos", "skip_special_tokens"],
    run: async (target) => {
      const { usage, choices } = await target.complete({ ignore_eos: true, max_tokens: 512, seed: 1 });
      expect([usage.completion_tokens, choices[0].finish_reason]).toEqual([512, "length"]);
      const body = { allowed_token_ids: [await endToken(target)], ignore_eos: true, max_tokens: 3 };
      expect(await target.text(body)).toBe("");
      const shown = await target.text({ ...body, skip_special_tokens: false });
      expect(shown).not.toBe("");
      expect(shown.length % 3).toBe(0);
    },
  },
  {
    number: 52,
    title: "neither a stop string nor the end token ends the output before min_tokens",
    fields: ["min_tokens", "stop"],
    run: async (target) => {
      const { text, ids, body } = await steadySample(target);
      const stop = text[0]!;
      expect((await target.choice({ ...body, stop })).token_ids).toHaveLength(1);
      const later = await target.choice({ ...body, stop, min_tokens: 5 });
      expect(later.token_ids.length).toBeGreaterThan(5);
      expect(later.token_ids).toEqual(ids.slice(0, later.token_ids.length));
      const end = await endToken(target);
      const held = await target.choice({
        logit_bias: { [end]: 100 },
        temperature: 0,
        min_tokens: 5,
        max_tokens: 20,
        return_token_ids: true,
      });
      expect(held.token_ids).toHaveLength(6);
      expect(held.token_ids.indexOf(end)).toBe(5);
    },
  },
  {
    number: 54,
    title: "rejects min_tokens above max_tokens, and an empty stop string",
    fields: ["min_tokens", "max_tokens", "stop"],
    run: async (target) => {
      for (const body of [{ min_tokens: 6, max_tokens: 5 }, { stop: [""] }, { stop: ["a", ""] }])
        expect(await target.refused(body)).toMatchObject({ status: 400, type: "BadRequestError" });
    },
  },
  {
    number: 56,
    title: "a stream never contains part of a matched stop string",
    fields: ["stop", "stream"],
    run: async (target) => {
      const { text, body } = await steadySample(target);
      const stop = text.trim().slice(6, 10);
      const whole = await target.choice({ ...body, stop });
      const { chunks } = await target.stream({ ...body, stop });
      let shown = "";
      for (const chunk of chunks) {
        shown += chunk.choices[0]?.delta.content ?? "";
        expect(whole.message.content.startsWith(shown)).toBe(true);
      }
      expect(shown).toBe(whole.message.content);
      expect(chunks.at(-1).choices[0]).toMatchObject({ finish_reason: "stop", stop_reason: stop });
    },
  },
  {
    number: 57,
    title: "a pattern that repeats often enough ends the output, with its own finish reason",
    fields: ["repetition_detection"],
    run: async (target) => {
      const [id] = (await greedySample(target)).ids;
      const body = { logit_bias: { [id!]: 100 }, temperature: 0, ignore_eos: true, return_token_ids: true, max_tokens: 12 };
      expect(await target.choice({ ...body, repetition_detection: { max_pattern_size: 1, min_count: 5 } })).toMatchObject({
        finish_reason: "repetition",
        stop_reason: "repetition_detected",
        token_ids: Array(5).fill(id),
      });
      expect(await target.choice({ ...body, repetition_detection: { max_pattern_size: 0 } })).toMatchObject({ finish_reason: "length" });
    },
  },
  {
    number: 57,
    title: "detects three tokens three times, but not twice, and not with a different last token",
    fields: ["repetition_detection"],
    needs: parrot(),
    run: async (target) => {
      const repetition_detection = { max_pattern_size: 3, min_pattern_size: 2, min_count: 3 };
      for (const [said, finish] of [
        ["abcabcabcx", "repetition"],
        ["abcabc", "stop"],
        ["abcabcabd", "stop"],
      ]) {
        const messages = [{ role: "user", content: `say:</think>${said}` }];
        expect((await target.choice({ messages, repetition_detection })).finish_reason, said).toBe(finish);
      }
    },
  },
  {
    number: 59,
    title: "rejects contradictory sizes, and a count below 2; all zero disables detection",
    fields: ["repetition_detection"],
    run: async (target) => {
      for (const repetition_detection of [
        { max_pattern_size: 2, min_pattern_size: 3, min_count: 2 },
        { max_pattern_size: 3, min_count: 1 },
      ])
        expect(await target.refused({ repetition_detection })).toMatchObject({ status: 400 });
      await target.complete({ repetition_detection: { max_pattern_size: 0, min_pattern_size: 0, min_count: 0 }, max_tokens: 1 });
    },
  },
  {
    number: 105,
    title: "special tokens are omitted only from the text; spaces between them do not apply to a byte-level tokenizer",
    fields: ["skip_special_tokens", "spaces_between_special_tokens", "include_stop_str_in_output"],
    run: async (target) => {
      const end = await endToken(target);
      const body = { allowed_token_ids: [end], ignore_eos: true, max_tokens: 2, return_token_ids: true };
      const hidden = await target.choice(body);
      expect([hidden.message.content, hidden.token_ids]).toEqual(["", [end, end]]);
      const shown = (spaces_between_special_tokens: boolean): Promise<string> =>
        target.text({ ...body, skip_special_tokens: false, spaces_between_special_tokens });
      expect((await shown(true)).replaceAll(" ", "")).toBe(await shown(false));
      const ended = { logit_bias: { [end]: 100 }, temperature: 0, include_stop_str_in_output: true };
      expect(await target.text(ended)).toBe("");
      expect(await target.text({ ...ended, skip_special_tokens: false })).not.toBe("");
    },
  },
];
