import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { ArgumentError, DataError } from "../../src/base/errors.ts";
import { buildRlBatch, needsRendering } from "../../src/learner/index.ts";
import type { RlConfig } from "../../src/base/schema/index.ts";
import { loadTokenizer } from "../../src/text/tokenizer/index.ts";
import { modelDirectory, sharedModel } from "../tokenizer/fixture.ts";
import { choice, group } from "./helpers.ts";

const { tokenizer } = await sharedModel();

const limits = { contextLength: 1024 };
const WITHOUT: RlConfig = { allow_training_without_logprobs: true };

/** A choice as a service without our extensions gives it: no token ids. */
function said(content: string, more: object = {}) {
  return { message: { role: "assistant", content }, finish_reason: "stop", ...more };
}

/** Log-probabilities of the tokens of a text. */
function logprobsOf(text: string, name: (id: number) => object = (id) => ({ token: tokenizer.tokenText(id) })) {
  return { content: [...tokenizer.encode(text)].map((id, index) => ({ logprob: -(index + 1) / 8, ...name(id) })) };
}

function batchOf(items: readonly unknown[], config: RlConfig = {}, other: unknown = choice([1], [2])) {
  return buildRlBatch([group({ reward: 1, choices: items }, { reward: 0, choices: [other] })], config, limits, { tokenizer });
}

/** The trained text of the first row, and all of its tokens as text. */
function textsOf({ rows }: ReturnType<typeof batchOf>, index = 0) {
  const { tokens, weights } = rows[index]!;
  return { trained: tokenizer.decode([...tokens].filter((_, t) => weights[t] !== 0)), all: tokenizer.decode(tokens) };
}

describe("choices without token ids", () => {
  it("are rendered with the chat template, prompt and answer", () => {
    const batch = batchOf([said("yes")], WITHOUT);
    expect(textsOf(batch)).toEqual({ trained: "yes<|end|>", all: expect.stringMatching(/q<\|end\|>.*yes<\|end\|>$/su) });
    expect(batch.rows[0]?.logprobs?.every(Number.isNaN)).toBe(true);
    expect(batch.metrics).toMatchObject({ "data/rendered_turns": 1, "data/rendered_drift": 0, "data/drifted_turns": 0 });
  });

  it.each([
    ["their text", (id: number) => ({ token: tokenizer.tokenText(id) })],
    ["their ids", (id: number) => ({ token: `token_id:${id}` })],
    ["their bytes", (id: number) => ({ token: "\uFFFD", bytes: [...tokenizer.tokenBytes(id)] })],
  ])("take the sampled tokens from log-probabilities with %s", (how, name) => {
    // A character of several tokens has no text of its own in each of them.
    const answer = how === "their text" ? "hello there" : "hé 🙂";
    const text = `${answer}<|end|>`;
    const batch = batchOf([said(answer, { logprobs: logprobsOf(text, name) })]);
    expect(textsOf(batch).trained).toBe(text);
    const { logprobs, weights } = batch.rows[0]!;
    expect([...logprobs!].filter((_value, t) => weights[t] !== 0)).toEqual(
      [...tokenizer.encode(text)].map((_id, index) => Math.fround(-(index + 1) / 8)),
    );
    expect(batch.metrics).toMatchObject({ "data/rendered_turns": 1, "data/rendered_drift": 0 });
  });

  it("take the character token, not the byte token, if the tokenizer has both", async () => {
    const file = JSON.parse(readFileSync(new URL("../oracle/byte-fallback/tokenizer.json", import.meta.url), "utf8")) as {
      model: { vocab: Record<string, number> };
    };
    const loaded = await loadTokenizer(
      await modelDirectory({
        "tokenizer.json": file,
        "tokenizer_config.json": { eos_token: "</s>", chat_template: "{% for m in messages %}{{ m.content }}</s>{% endfor %}" },
        "generation_config.json": {},
        "config.json": {},
      }),
    );
    const { vocab } = file.model;
    const content = ["x", "</s>"].map((token) => ({ token, bytes: [...Buffer.from(token)], logprob: -1 }));
    const groups = [group({ reward: 1, choices: [said("x", { logprobs: { content } })] }, { reward: 0, choices: [choice([1], [2])] })];
    const { rows } = buildRlBatch(groups, {}, limits, { tokenizer: loaded });
    const { tokens, weights } = rows[0]!;
    expect([...tokens].filter((_, t) => weights[t] !== 0)).toEqual([vocab["x"], vocab["</s>"]]);
  });

  it("count as drifted if the template renders other tokens than were sampled", () => {
    const batch = batchOf([said("yes", { logprobs: logprobsOf("yes!<|end|>") })]);
    expect(textsOf(batch).trained).toBe("yes!<|end|>");
    expect(batch.metrics).toMatchObject({ "data/rendered_turns": 1, "data/rendered_drift": 1 });
  });

  it("have no end token if they were cut by length", () => {
    const batch = batchOf([said("yes", { finish_reason: "length" })], WITHOUT);
    expect(textsOf(batch).trained).toBe("yes");
    const known = batchOf([said("yes", { finish_reason: "length", logprobs: logprobsOf("yes") })]);
    expect(known.metrics["data/rendered_drift"]).toBe(0);
  });

  it("are merged with the previous turn if they continue it", () => {
    const batch = batchOf([said("yes"), { role: "user", content: "sure?" }, said("no")], WITHOUT);
    expect(textsOf(batch).trained).toBe("yes<|end|>no<|end|>");
    expect(batch.metrics).toMatchObject({ "data/rendered_turns": 2, "data/merged_turns": 1, "data/drifted_turns": 0 });
  });

  it("are rendered with the history's tools", () => {
    const tools = [{ type: "function", function: { name: "search", parameters: { type: "object", properties: {} } } }];
    const both = (extra: object) => {
      const [first, second] = group({ reward: 1, choices: [said("yes")] }, { reward: 0, choices: [choice([1], [2])] }).trajectories;
      const trajectories = [{ ...first!, ...extra }, second!];
      return buildRlBatch([{ trajectories, exceptions: [], metadata: {}, metrics: {}, logs: [] }], WITHOUT, limits, { tokenizer });
    };
    const prompts = [both({}), both({ tools })].map((batch) => textsOf(batch).all);
    const rendered = tokenizer.renderChat([{ role: "user", content: "q" }], { tools });
    expect(prompts[1]).toBe(`${rendered}yes<|end|>`);
  });

  it("need log-probabilities unless the job allows them to be absent", () => {
    expect(() => batchOf([said("yes")])).toThrow(ArgumentError);
    expect(() => batchOf([said("yes")])).toThrow(/trajectories\.0\.messages_and_choices\.1: A choice has no log-probabilities/);
  });

  it.each([
    ["a token that the vocabulary has not", { content: [{ token: "nonesuchtoken", logprob: -1 }] }, /"nonesuchtoken".*vocabulary/],
    ["a log-probability above 0", { content: [{ token: "token_id:3", logprob: 1 }] }, /finite number of at most 0/],
  ])("are rejected with %s", (_, logprobs, message) => {
    const build = () => batchOf([said("yes", { logprobs })]);
    expect(build).toThrow(DataError);
    expect(build).toThrow(message);
  });

  it("are rejected without a tokenizer", () => {
    const groups = [group({ reward: 1, choices: [said("yes")] }, { reward: 0, choices: [choice([1], [2])] })];
    expect(() => buildRlBatch(groups, WITHOUT, limits)).toThrow(/A choice has no token ids/);
    expect(needsRendering(groups)).toBe(true);
    expect(needsRendering([group({ reward: 1, choices: [choice([1], [2])] })])).toBe(false);
    expect(needsRendering([group({ reward: 1, choices: [choice([1], [2])], extra: [[said("x")]] })])).toBe(true);
  });
});

describe("choices with token ids and without log-probabilities", () => {
  const bare = { ...choice([1], [2, 3]), logprobs: null };

  it("are trained with ratio 1 if the job allows them, and rejected otherwise", () => {
    const { rows } = batchOf([bare], WITHOUT);
    expect([...rows[0]!.tokens]).toEqual([1, 2, 3]);
    expect([...rows[0]!.logprobs!]).toEqual([Number.NaN, Number.NaN, Number.NaN]);
    expect(rows[1]?.logprobs?.[1]).toBe(Math.fround(-0.1));
    expect(() => batchOf([bare])).toThrow(/A choice has no log-probabilities/);
  });

  it("are rejected without sampled tokens", () => {
    expect(() => batchOf([{ ...bare, token_ids: [] }], WITHOUT)).toThrow(DataError);
  });
});
