/**
 * Effect of the most common fields on the distribution of outputs, compared with requests without them, over the embedded engine. The
 * model's own distribution is read from its log-probabilities; the expected distribution is computed here, and over a thousand
 * seeds the tokens must follow it. The seeds are fixed, so that results are reproducible.
 */
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, describe, expect, it } from "vitest";
import { startService } from "../../../src/service/index.ts";
import { END, tokenizer } from "./support.ts";

const directory = await mkdtemp(join(tmpdir(), "chat-differential-"));
const service = await startService({ dataDir: directory, limits: { chat: { maxTopLogprobs: 1_000_000 } } });
afterAll(async () => {
  await service.close();
  await rm(directory, { recursive: true });
});

/** Requests per distribution, with 128 choices each. */
const REQUESTS = 8;
/** Requests for whole outputs, each of which has an expected value of its own. */
const FEW_REQUESTS = 4;
const WIDTH = 128;

async function complete(body: object): Promise<any> {
  const response = await fetch(`${service.url}/v1/chat/completions`, {
    method: "POST",
    headers: { "content-type": "application/json", authorization: `Bearer ${service.apiKey}` },
    body: JSON.stringify({ messages: [{ role: "user", content: "say" }], return_token_ids: true, ...body }),
  });
  const parsed: any = await response.json();
  expect(response.status, JSON.stringify(parsed).slice(0, 300)).toBe(200);
  return parsed;
}

interface Output {
  readonly ids: readonly number[];
  readonly text: string;
  readonly finish: string;
}

const known = new Map<string, Promise<Output[]>>();

/** Returns outputs, one for each seed from 0. Equal bodies have equal outputs, which several tests compare with theirs. */
function outputs(body: object, requests = REQUESTS): Promise<Output[]> {
  const key = JSON.stringify({ requests, body });
  const found = known.get(key) ?? sampled(body, requests);
  known.set(key, found);
  return found;
}

async function sampled(body: object, requests: number): Promise<Output[]> {
  const answers = await Promise.all(Array.from({ length: requests }, (_, at) => complete({ n: WIDTH, seed: at * WIDTH, ...body })));
  return answers.flatMap(({ choices }) =>
    choices.map((choice: any) => ({ ids: choice.token_ids, text: choice.message.content, finish: choice.finish_reason })),
  );
}

/** Probabilities by id. */
type Distribution = ReadonlyMap<number, number>;

/** Returns the model's own distribution at each position of the greedy output. */
async function distributions(body: object, count = 1): Promise<{ readonly ids: readonly number[]; readonly at: readonly Distribution[] }> {
  const asked = { logprobs: true, top_logprobs: -1, return_tokens_as_token_ids: true, temperature: 0, max_tokens: count, ignore_eos: true };
  const [choice] = (await complete({ ...asked, ...body })).choices;
  return {
    ids: choice.token_ids,
    at: choice.logprobs.content.map(
      ({ top_logprobs: all }: any) =>
        new Map(all.map(({ token, logprob }: any) => [Number(token.replace("token_id:", "")), Math.exp(logprob)])),
    ),
  };
}
const ownDistribution = async (body: object = {}): Promise<Distribution> => (await distributions(body)).at[0]!;

/** Returns a distribution with other weights, normalized. */
function reweighted(from: Distribution, weight: (probability: number, id: number) => number): Distribution {
  const weights = [...from].map(([id, probability]) => [id, weight(probability, id)] as const);
  const total = weights.reduce((sum, [, each]) => sum + each, 0);
  return new Map(weights.map(([id, each]) => [id, each / total]));
}
const ranked = (from: Distribution): (readonly [number, number])[] => [...from].sort((a, b) => b[1] - a[1]);

/**
 * Returns the distance of counts from a distribution: Pearson's statistic over the tokens expected at least five times and all others
 * together, in standard deviations from its mean. Infinite if a token with probability 0 was drawn.
 */
function distance(ids: readonly number[], expected: Distribution): number {
  const counts = new Map<number, number>();
  for (const id of ids) counts.set(id, (counts.get(id) ?? 0) + 1);
  for (const id of counts.keys()) if (!((expected.get(id) ?? 0) > 0)) return Infinity;
  let [statistic, cells, restSeen, restExpected] = [0, 0, 0, 0];
  for (const [id, probability] of expected) {
    const mean = probability * ids.length;
    const seen = counts.get(id) ?? 0;
    if (mean < 5) {
      restSeen += seen;
      restExpected += mean;
      continue;
    }
    statistic += (seen - mean) ** 2 / mean;
    cells++;
  }
  if (restExpected >= 1) {
    statistic += (restSeen - restExpected) ** 2 / restExpected;
    cells++;
  }
  const freedom = Math.max(cells - 1, 1);
  return (statistic - freedom) / Math.sqrt(2 * freedom);
}
/** Standard deviations that chance exceeds in about one of several hundred thousand draws. */
const FAR = 5;

const firstIds = async (body: object): Promise<number[]> => (await outputs({ max_tokens: 1, ...body })).map(({ ids }) => ids[0]!);

/** Expects tokens with the field to follow `on`, and tokens without it to follow the model's distribution and not `on`. */
async function expectDistribution(field: object, on: Distribution, rest: object = {}): Promise<void> {
  const off = await ownDistribution(rest);
  const [without, withIt] = [await firstIds(rest), await firstIds({ ...rest, ...field })];
  expect(distance(without, off)).toBeLessThan(FAR);
  expect(distance(withIt, on)).toBeLessThan(FAR);
  expect(distance(without, on)).toBeGreaterThan(2 * FAR);
}

const own = await ownDistribution();
const best = ranked(own).map(([id]) => id);

describe("the first token follows the distribution that a field derives from the model's", () => {
  it.each([0.5, 2])("temperature %d: probabilities to the power of 1 / temperature", async (temperature) => {
    await expectDistribution(
      { temperature },
      reweighted(own, (probability) => probability ** (1 / temperature)),
    );
  });
  it("top_k: the k most likely tokens", async () => {
    const kept = new Set(best.slice(0, 3));
    await expectDistribution(
      { top_k: 3 },
      reweighted(own, (probability, id) => (kept.has(id) ? probability : 0)),
    );
  });
  it("top_p: the most likely tokens up to the cumulative probability", async () => {
    let mass = 0;
    const kept = new Set(
      ranked(own)
        .filter(([, probability]) => (mass += probability) - probability < 0.6)
        .map(([id]) => id),
    );
    await expectDistribution(
      { top_p: 0.6 },
      reweighted(own, (probability, id) => (kept.has(id) ? probability : 0)),
    );
  });
  it("min_p: tokens at or above that fraction of the highest probability", async () => {
    const least = 0.3 * own.get(best[0]!)!;
    await expectDistribution(
      { min_p: 0.3 },
      reweighted(own, (probability) => (probability >= least ? probability : 0)),
    );
  });
  it("logit_bias: probabilities times exp(bias)", async () => {
    const bias: Readonly<Record<number, number>> = { [best[0]!]: -1.5, [best[2]!]: 1, [best[5]!]: 2 };
    await expectDistribution(
      { logit_bias: bias },
      reweighted(own, (probability, id) => probability * Math.exp(bias[id] ?? 0)),
    );
  });
  it("allowed_token_ids: only these tokens", async () => {
    const allowed = best.slice(1, 6);
    await expectDistribution(
      { allowed_token_ids: allowed },
      reweighted(own, (probability, id) => (allowed.includes(id) ? probability : 0)),
    );
  });
  it("bad_words: all other tokens", async () => {
    const banned = best.find(
      (id) => tokenizer.encode(tokenizer.tokenText(id)).join() === String(id) && /^[a-z]+$/u.test(tokenizer.tokenText(id)),
    )!;
    const word = tokenizer.tokenText(banned);
    const spaced = [...tokenizer.encode(` ${word}`)];
    const never = new Set([banned, ...(spaced.length === 1 ? spaced : [])]);
    await expectDistribution(
      { bad_words: [word] },
      reweighted(own, (probability, id) => (never.has(id) ? 0 : probability)),
    );
  });
  it("min_tokens: all tokens except end tokens", async () => {
    const rest = { logit_bias: { [END]: 6 } };
    const biased = reweighted(own, (probability, id) => probability * (id === END ? Math.exp(6) : 1));
    const [without, withIt] = [await firstIds(rest), await firstIds({ ...rest, min_tokens: 1 })];
    expect(distance(without, biased)).toBeLessThan(FAR);
    expect(
      distance(
        withIt,
        reweighted(own, (probability, id) => (id === END ? 0 : probability)),
      ),
    ).toBeLessThan(FAR);
    expect(without).toContain(END);
  });
  it("tools with tool_choice none or auto: the prompt with the tools", async () => {
    const tools = [{ type: "function", function: { name: "add", description: "adds two numbers", parameters: { type: "object" } } }];
    const shown = await ownDistribution({ tools, tool_choice: "none" });
    await expectDistribution({ tools, tool_choice: "none" }, shown);
    expect(await firstIds({ tools, tool_choice: "auto" })).toEqual(await firstIds({ tools, tool_choice: "none" }));
  });
  /** Returns the model's own distribution restricted to tokens that start one of the texts. */
  const beginning = (from: Distribution, texts: readonly string[]): Distribution =>
    reweighted(from, (probability, id) => {
      const token = tokenizer.tokenText(id);
      return token !== "" && texts.some((text) => text.startsWith(token)) ? probability : 0;
    });
  it.each([
    ["structured_outputs, choice", { structured_outputs: { choice: ["red", "green", "blue"] } }, ["red", "green", "blue"]],
    ["structured_outputs, regex", { structured_outputs: { regex: "(ab|cd)+" } }, ["abab", "abcd", "cdab", "cdcd"]],
    [
      "response_format, a schema",
      { response_format: { type: "json_schema", json_schema: { name: "said", schema: { enum: ["red", 17, true] } } } },
      ['"red"', "17", "true"],
    ],
  ])("%s: the tokens that start a valid output", async (_name, field, texts) => {
    await expectDistribution(field, beginning(own, texts));
    const said = await outputs({ ...field, max_tokens: 20 }, FEW_REQUESTS);
    const ended = said.filter(({ finish }) => finish === "stop");
    expect(ended.length).toBeGreaterThan(said.length / 2);
    if (_name.endsWith("regex")) expect(ended.every(({ text }) => /^(ab|cd)+$/u.test(text))).toBe(true);
    else expect(ended.every(({ text }) => texts.includes(text))).toBe(true);
  });
  it("tool_choice with a function name: the tokens that start its arguments", async () => {
    const parameters = { type: "object", properties: { c: { enum: ["red", "blue"] } }, required: ["c"], additionalProperties: false };
    const tools = [{ type: "function", function: { name: "paint", parameters } }];
    const spaces = ["", " ", ...["\n", "\r\n"].flatMap((end) => [" ", "\t"].map((each) => end + each.repeat(40)))];
    const texts = spaces.flatMap((space) => [`{${space}"c":"red"`, `{${space}"c": "red"`]);
    const rest = { tools, tool_choice: "auto" };
    const without = await ownDistribution(rest);
    expect(distance(await firstIds(rest), without)).toBeLessThan(FAR);
    const forced = { tools, tool_choice: { type: "function", function: { name: "paint" } } };
    expect(distance(await firstIds(forced), beginning(without, texts))).toBeLessThan(FAR);
    expect(distance(await firstIds(rest), beginning(without, texts))).toBeGreaterThan(2 * FAR);
  });
  it("continue_final_message: the tokens that follow the given text", async () => {
    const { ids, at } = await distributions({}, 2);
    const given = tokenizer.tokenText(ids[0]!);
    const body = {
      messages: [
        { role: "user", content: "say" },
        { role: "assistant", content: given },
      ],
      continue_final_message: true,
      add_generation_prompt: false,
    };
    expect([...tokenizer.encode(given)]).toEqual([ids[0]]);
    expect(distance(await firstIds(body), at[1]!)).toBeLessThan(FAR);
    expect(distance(await firstIds({}), at[1]!)).toBeGreaterThan(2 * FAR);
  });
});

describe("a later token depends on the previous output", () => {
  /** Restricts sampling to two tokens, so that outputs often share a prefix; `last` is the distribution after the more likely token. */
  async function afterFirst(count: number) {
    const allowed = best.slice(0, 2);
    const forced = { allowed_token_ids: allowed, logit_bias: { [allowed[0]!]: 100 } };
    const { at } = await distributions(forced, count);
    const among = (of: Distribution): Distribution => reweighted(of, (probability, id) => (allowed.includes(id) ? probability : 0));
    return { first: allowed[0]!, body: { allowed_token_ids: allowed, ignore_eos: true, max_tokens: count }, last: among(at.at(-1)!) };
  }
  const lastIds = async (body: object, first: number): Promise<number[]> =>
    (await outputs(body)).filter(({ ids }) => ids.slice(0, -1).every((id) => id === first)).map(({ ids }) => ids.at(-1)!);

  it.each([
    ["presence_penalty", 1.5],
    ["presence_penalty", -1],
  ])("%s %d: applies once to a token of the output", async (field, penalty) => {
    const { first, body, last } = await afterFirst(2);
    const on = reweighted(last, (probability, id) => probability * (id === first ? Math.exp(-penalty) : 1));
    expect(distance(await lastIds(body, first), last)).toBeLessThan(FAR);
    // No penalty applies to the first token.
    expect(distance(await lastIds({ ...body, [field]: penalty }, first), on)).toBeLessThan(FAR);
    expect(distance(await lastIds(body, first), on)).toBeGreaterThan(FAR);
  });
  it("frequency_penalty: applies for each occurrence", async () => {
    const { first, body, last } = await afterFirst(3);
    const penalty = -0.75;
    const on = reweighted(last, (probability, id) => probability * (id === first ? Math.exp(-2 * penalty) : 1));
    expect(distance(await lastIds({ ...body, frequency_penalty: penalty }, first), on)).toBeLessThan(FAR);
    expect(distance(await lastIds(body, first), last)).toBeLessThan(FAR);
    expect(distance(await lastIds(body, first), on)).toBeGreaterThan(FAR);
  });
  it("repetition_penalty: applies to tokens of the output and the prompt", async () => {
    const { first, body } = await afterFirst(2);
    const share = async (given: object): Promise<number> => {
      const ids = await lastIds({ ...body, ...given }, first);
      return ids.filter((id) => id === first).length / ids.length;
    };
    const off = await share({});
    expect(await share({ repetition_penalty: 1.8 })).toBeLessThan(off - 0.05);
    expect(await share({ repetition_penalty: 0.6 })).toBeGreaterThan(off + 0.05);
    const messages = [{ role: "user", content: tokenizer.tokenText(best[1]!) }];
    const said = async (given: object): Promise<number> =>
      (await firstIds({ messages, allowed_token_ids: body.allowed_token_ids, ...given })).filter((id) => id === best[1]).length;
    expect(await said({ repetition_penalty: 1.8 })).toBeLessThan((await said({})) - 20);
  });
});

const LONG = { max_tokens: 16 };
const longOutputs = (fields: object = {}) => outputs({ ...LONG, ...fields }, FEW_REQUESTS);
const plain = await longOutputs();

describe("for each seed, a field changes only where the output ends", () => {
  /** Returns the index after the first of `ids` that is in `ends`, or the length. */
  const until = (ids: readonly number[], ends: readonly number[]): number => {
    const at = ids.findIndex((id) => ends.includes(id));
    return at === -1 ? ids.length : at + 1;
  };

  it.each(["max_tokens", "max_completion_tokens"])("%s: keeps the first tokens", async (field) => {
    const short = await longOutputs({ [field]: 5 });
    expect(short.map(({ ids }) => ids)).toEqual(plain.map(({ ids }) => ids.slice(0, 5)));
    expect(short.filter(({ finish }) => finish === "length").length).toBeGreaterThan(
      plain.filter(({ finish }) => finish === "length").length,
    );
  });
  it("stop: keeps the text before the string", async () => {
    const cut = await longOutputs({ stop: ["e", "th"] });
    for (const [at, { text }] of plain.entries()) {
      const places = [text.indexOf("e"), text.indexOf("th")].filter((place) => place !== -1);
      expect(cut[at]!.text).toBe(text.slice(0, Math.min(text.length, ...places)));
    }
    expect(cut.filter(({ text }, at) => text !== plain[at]!.text).length).toBeGreaterThan(plain.length / 20);
  });
  it("include_stop_str_in_output: keeps the string", async () => {
    const kept = await longOutputs({ stop: "e", include_stop_str_in_output: true });
    for (const [at, { text }] of plain.entries())
      expect(kept[at]!.text).toBe(text.includes("e") ? text.slice(0, text.indexOf("e") + 1) : text);
  });
  it("stop_token_ids: keeps the tokens up to and including the stop token", async () => {
    const ends = best.slice(0, 2);
    const cut = await longOutputs({ stop_token_ids: ends });
    expect(cut.map(({ ids }) => ids)).toEqual(plain.map(({ ids }) => ids.slice(0, until(ids, ends))));
  });
  it("ignore_eos: continues after the end token", async () => {
    const on = await longOutputs({ ignore_eos: true });
    for (const [at, { ids }] of plain.entries()) {
      expect(on[at]!.ids.slice(0, ids.length)).toEqual(ids);
      expect(on[at]!.ids).toHaveLength(16);
    }
    expect(plain.some(({ ids }) => ids.length < 16)).toBe(true);
  });
  it("repetition_detection: keeps the tokens up to the third repetition", async () => {
    const cut = await longOutputs({ repetition_detection: { max_pattern_size: 1, min_count: 3 } });
    for (const [at, { ids }] of plain.entries()) {
      const third = ids.findIndex((id, place) => place >= 2 && id === ids[place - 1] && id === ids[place - 2] && id !== END);
      expect(cut[at]!.ids).toEqual(third === -1 ? ids : ids.slice(0, third + 1));
    }
  });
  it("seed and n: a choice depends only on its seed; other seeds give other outputs", async () => {
    for (const seed of [0, 77, 500]) expect((await complete({ ...LONG, seed })).choices[0].token_ids).toEqual(plain[seed]!.ids);
    expect(new Set(plain.map(({ ids }) => ids.join())).size).toBeGreaterThan(150);
    const later = await outputs({ ...LONG, n: 4, seed: 3 }, 1);
    expect(later.slice(0, 4)).toEqual(plain.slice(3, 7));
  });
  it("logprobs, top_logprobs, prompt_logprobs, user and cache_salt change no token", async () => {
    const asked = { logprobs: true, top_logprobs: 5, prompt_logprobs: 1, user: "me", cache_salt: "salt" };
    expect(await longOutputs(asked)).toEqual(plain);
  });
  it("skip_special_tokens false: shows the end token as text", async () => {
    const shown = await longOutputs({ ignore_eos: true, skip_special_tokens: false });
    const hidden = await longOutputs({ ignore_eos: true });
    expect(shown.map(({ ids }) => ids)).toEqual(hidden.map(({ ids }) => ids));
    expect(hidden.some(({ text }) => text.includes("<|end|>"))).toBe(false);
    expect(shown.some(({ text }) => text.includes("<|end|>"))).toBe(true);
  });
});
