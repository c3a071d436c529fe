/** Fields that change the output of the shipped model, over the service and the embedded engine, compared with requests without them. */
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { startService, type RunningService } from "../../../src/service/index.ts";
import { tokenizer } from "./support.ts";

let service: RunningService;
let directory: string;
beforeAll(async () => {
  directory = await mkdtemp(join(tmpdir(), "chat-live-"));
  service = await startService({ dataDir: directory });
});
afterAll(async () => {
  await service.close();
  await rm(directory, { recursive: true });
});

/** Returns the response to one request. */
async function answerTo(body: object): Promise<any> {
  const response = await fetch(`${service.url}/v1/chat/completions`, {
    method: "POST",
    headers: { "content-type": "application/json", authorization: `Bearer ${service.apiKey}` },
    body: JSON.stringify({ messages: [{ role: "user", content: "say" }], max_tokens: 24, seed: 1, return_token_ids: true, ...body }),
  });
  const parsed: any = await response.json();
  expect(response.status, JSON.stringify(parsed)).toBe(200);
  return parsed;
}
const choicesOf = async (body: object): Promise<any[]> => (await answerTo(body)).choices;
const idsOf = async (body: object): Promise<number[][]> => (await choicesOf(body)).map((choice) => choice.token_ids);
/** Returns the number of distinct tokens divided by the length of an output; mean over 48 outputs. */
async function variety(body: object): Promise<number> {
  const outputs = await idsOf({ n: 48, ignore_eos: true, ...body });
  return outputs.reduce((sum, ids) => sum + new Set(ids).size / ids.length, 0) / outputs.length;
}
/** Returns the entropy of the first token over many choices, in nats. */
async function spread(body: object): Promise<number> {
  const counts = new Map<number, number>();
  const outputs = await idsOf({ n: 128, max_tokens: 1, ...body });
  for (const [id] of outputs) counts.set(id!, (counts.get(id!) ?? 0) + 1);
  return -[...counts.values()].reduce((sum, count) => sum + (count / outputs.length) * Math.log(count / outputs.length), 0);
}

describe("outputs with a field, compared with outputs without it", () => {
  it("the same seed gives the same tokens, with and without sampling fields", async () => {
    const ruled = { repetition_penalty: 1.2, min_p: 0.02, logit_bias: { 40: 1 }, temperature: 1.3 };
    expect(await idsOf(ruled)).toEqual(await idsOf(ruled));
    expect(await idsOf({})).toEqual(await idsOf({ logit_bias: {}, min_tokens: 0 }));
  });
  it("41, 43: restricts sampling to allowed tokens, or to a token with a bias of 100", async () => {
    const [x, y] = [...tokenizer.encode("xy")];
    for (const id of (await idsOf({ allowed_token_ids: [x, y], n: 4 })).flat()) expect([x, y]).toContain(id);
    expect(new Set((await idsOf({ logit_bias: { [x!]: 100 }, temperature: 0, ignore_eos: true })).flat())).toEqual(new Set([x]));
  });
  it("42: never samples a bad word that is otherwise frequent", async () => {
    const said = await choicesOf({ n: 32 });
    const counts = new Map<string, number>();
    for (const { message } of said)
      for (const [letter] of message.content.matchAll(/[a-z]/g)) counts.set(letter, (counts.get(letter) ?? 0) + 1);
    const [[letter] = ["e"]] = [...counts].sort((a, b) => b[1] - a[1]);
    const id = tokenizer.encode(letter)[0]!;
    expect((await idsOf({ n: 32, bad_words: [letter] })).flat()).not.toContain(id);
  });
  it("38 to 40: penalties increase the variety of outputs, and negative penalties decrease it", async () => {
    const free = await variety({});
    expect(await variety({ presence_penalty: 2 })).toBeGreaterThan(free + 0.02);
    expect(await variety({ frequency_penalty: 2 })).toBeGreaterThan(free + 0.02);
    expect(await variety({ repetition_penalty: 2 })).toBeGreaterThan(free + 0.02);
    expect(await variety({ frequency_penalty: -2 })).toBeLessThan(free - 0.02);
  });
  it("min-p, top-k and a low temperature narrow the first token", async () => {
    const hot = { temperature: 2 };
    const free = await spread(hot);
    expect(await spread({ ...hot, min_p: 0.5 })).toBeLessThan(free - 0.2);
    expect(await spread({ ...hot, top_k: 2 })).toBeLessThan(Math.log(2) + 1e-9);
    expect(await spread({ temperature: 0.2 })).toBeLessThan(free - 0.2);
  });
  it("51, 52: ignore_eos continues after the end token, and min_tokens delays it", async () => {
    const free = await choicesOf({ n: 48 });
    const short = free.filter(({ token_ids }) => token_ids.length < 12).length;
    expect(short, "the shipped model ends some outputs early").toBeGreaterThan(0);
    for (const { token_ids, finish_reason } of await choicesOf({ n: 48, ignore_eos: true })) {
      expect(token_ids).toHaveLength(24);
      expect(finish_reason).toBe("length");
    }
    for (const ids of await idsOf({ n: 48, min_tokens: 12 })) expect(ids.length).toBeGreaterThanOrEqual(12);
  });
  it("57: ends an output that repeats itself", async () => {
    const [id] = tokenizer.encode("x");
    const [choice] = await choicesOf({
      logit_bias: { [id!]: 100 },
      temperature: 0,
      ignore_eos: true,
      repetition_detection: { max_pattern_size: 1, min_count: 5 },
    });
    expect(choice).toMatchObject({ finish_reason: "repetition", token_ids: Array(5).fill(id) });
  });
  it("9: sampled tokens have the same log-probabilities as part of a prompt, also in a long prompt", async () => {
    const messages = [{ role: "user", content: "several words of a prompt. ".repeat(16) }];
    const first = await answerTo({ messages, logprobs: true, temperature: 0, ignore_eos: true });
    const [{ message, token_ids, logprobs }] = first.choices;
    const start = first.prompt_token_ids.length;
    expect(start).toBeGreaterThan(256);
    const turns = [...messages, { role: "assistant", content: message.content }];
    const { prompt_logprobs, prompt_token_ids } = await answerTo({
      messages: turns,
      add_generation_prompt: false,
      prompt_logprobs: 1,
      max_tokens: 1,
    });
    expect(prompt_token_ids.slice(0, start + token_ids.length)).toEqual([...first.prompt_token_ids, ...token_ids]);
    for (const [at, id] of token_ids.entries()) {
      const entry = prompt_logprobs[start + at][id];
      expect(Math.abs(entry.logprob - logprobs.content[at].logprob)).toBeLessThan(1e-4);
      expect(entry.rank).toBe(1);
    }
  });
  it("answers 400 if the sampling fields leave no token at a later step", async () => {
    const ids = [...tokenizer.encode("x")];
    const response = await fetch(`${service.url}/v1/chat/completions`, {
      method: "POST",
      headers: { "content-type": "application/json", authorization: `Bearer ${service.apiKey}` },
      body: JSON.stringify({ messages: [{ role: "user", content: "a" }], allowed_token_ids: ids, bad_words: ["xx"], max_tokens: 9 }),
    });
    expect([...tokenizer.encode("xx")]).toEqual([...ids, ...ids]);
    expect(response.status).toBe(400);
    await choicesOf({});
  });
});
