/** Fields for sampling and stopping: parameters of the engine, resulting text, and errors. */
import { describe, expect, it } from "vitest";
import { isRepeating } from "../../../src/service/chat/generate/repetition.ts";
import { END, HELLO, joinChoice, readEvents, tokenizer, useChatServer, type ChatServer } from "./support.ts";

const V = tokenizer.vocabularySize;
const encode = (text: string): number[] => [...tokenizer.encode(text)];
const { server, start, refusal, lastParams } = await useChatServer();
/** Returns the sampling parameters that the engine receives for `body`. */
async function paramsOf(body: object): Promise<any> {
  await server.complete({ ...HELLO, ...body });
  return lastParams();
}
/** Returns the only choice for `body`, and expects the same from a stream. */
async function answer(target: ChatServer, body: object): Promise<any> {
  const { choices } = await target.complete({ ...HELLO, return_token_ids: true, ...body });
  const { chunks } = await readEvents(await target.post({ ...HELLO, return_token_ids: true, ...body, stream: true }));
  const [choice] = choices;
  expect(joinChoice(chunks)).toMatchObject({
    content: choice.message.content,
    tokenIds: choice.token_ids,
    finishes: [choice.finish_reason],
    stopReason: choice.stop_reason,
  });
  return choice;
}

describe("logit fields", () => {
  it("neutral values send no parameter to the engine", async () => {
    const plain = Object.keys(await paramsOf({})).sort();
    const neutral = {
      logit_bias: {},
      bad_words: [],
      min_tokens: 0,
      min_p: 0,
      repetition_penalty: 1,
      frequency_penalty: 0,
      presence_penalty: "0",
    };
    expect(Object.keys(await paramsOf(neutral)).sort()).toEqual(plain);
  });
  it("numbers reach the engine unchanged", async () => {
    const asked = { min_p: 0.1, repetition_penalty: "1.2", frequency_penalty: -2, presence_penalty: 2, allowed_token_ids: [5, END] };
    expect(await paramsOf(asked)).toMatchObject({
      minP: 0.1,
      repetitionPenalty: 1.2,
      frequencyPenalty: -2,
      presencePenalty: 2,
      allowedTokenIds: [5, END],
    });
  });
  it("43: a bias is clamped to 100", async () => {
    const { logitBias } = await paramsOf({ logit_bias: { 7: 1000, "8": -1e6, 9: 0.5 } });
    expect([...logitBias]).toEqual([
      [7, 100],
      [8, -100],
      [9, 0.5],
    ]);
    expect((await paramsOf({ logit_bias: { [V - 1]: 1 } })).logitBias.size).toBe(1);
  });
  it("43, 44: rejects a bias on an id outside the vocabulary", async () => {
    expect(await refusal({ logit_bias: { [V + 1]: 1 } })).toMatchObject({ status: 400, type: "BadRequestError", param: "logit_bias" });
    const { message } = await refusal({ logit_bias: { [V + 1]: 1 } });
    expect(message).toContain(String(V + 1));
    expect(message).toContain(`${V} tokens`);
    expect(await refusal({ logit_bias: { abc: 1 } })).toMatchObject({ status: 400, param: "logit_bias" });
    expect(await refusal({ logit_bias: { "1.5": 1 } })).toMatchObject({ status: 400, param: "logit_bias" });
  });
  it("41: rejects an empty list of allowed ids and ids outside the vocabulary", async () => {
    for (const allowed_token_ids of [[], [-1], [10_000_000]])
      expect(await refusal({ allowed_token_ids })).toMatchObject({ status: 400, type: "BadRequestError", param: "allowed_token_ids" });
  });
  it("42: bans a bad word at the start of a text and after a space", async () => {
    const { bannedSequences } = await paramsOf({ bad_words: ["  yes", "hello there"] });
    for (const word of ["yes", "hello there"]) {
      const [bare, spaced] = [encode(word), encode(` ${word}`)];
      expect(bannedSequences).toContainEqual(bare);
      const isOther = spaced.length === bare.length && spaced[0] !== bare[0];
      if (isOther) expect(bannedSequences).toContainEqual(spaced);
      else expect(bannedSequences).not.toContainEqual(spaced);
    }
    expect(await refusal({ bad_words: [""] })).toMatchObject({ status: 400, type: "BadRequestError" });
  });
  it("35: rejects numbers outside their ranges", async () => {
    for (const body of [
      { min_p: 1.1 },
      { min_p: -0.1 },
      { repetition_penalty: 0 },
      { presence_penalty: 2.5 },
      { frequency_penalty: -2.1 },
      { min_tokens: -1 },
      { min_tokens: 6, max_tokens: 5 },
    ]) {
      expect(await refusal(body), JSON.stringify(body)).toMatchObject({ status: 400, type: "BadRequestError", param: null });
    }
  });
  it("52, 54: samples no end token before min_tokens", async () => {
    expect(await paramsOf({ min_tokens: 3, stop_token_ids: [7, 10_000_000] })).toMatchObject({
      minTokens: 3,
      lateTokenIds: [...tokenizer.eosTokenIds, 7],
    });
    expect(await paramsOf({ min_tokens: 3, ignore_eos: true })).toMatchObject({
      lateTokenIds: [...tokenizer.eosTokenIds],
      stopTokenIds: [],
    });
  });
  it("rejects fields that leave no token at the first step or at a later step", async () => {
    expect(await refusal({ allowed_token_ids: [END], min_tokens: 1 })).toMatchObject({ status: 400, param: "allowed_token_ids" });
    const { UnsupportedError } = await import("../../../src/base/errors.ts");
    const stuck = await start({
      before: ({ verb, detail }) => {
        if (verb === "sampleToken" && detail === 1) throw new UnsupportedError("no token left");
      },
    });
    expect((await stuck.post(HELLO)).status).toBe(400);
  });
  it("cache_salt reaches the engine", async () => {
    for (const salt of ["mine", "s".repeat(1024)]) expect(await paramsOf({ cache_salt: salt })).toMatchObject({ cacheSalt: salt });
    expect(await paramsOf({})).not.toHaveProperty("cacheSalt");
  });
});

describe("stopping", () => {
  it("49: a stop token ends the output, and is part of the text only on request", async () => {
    const ids = encode("one two, three");
    const stop = ids[2]!;
    const target = await start({ says: ids });
    const cut = await answer(target, { stop_token_ids: [stop, 10_000_000] });
    expect(cut).toMatchObject({ finish_reason: "stop", stop_reason: stop, token_ids: ids.slice(0, 3) });
    expect(cut.message.content).toBe(tokenizer.decode(ids.slice(0, 2)));
    const kept = await answer(target, { stop_token_ids: [stop], include_stop_str_in_output: true });
    expect(kept.message.content).toBe(tokenizer.decode(ids.slice(0, 3)));
  });
  it("51: ignore_eos continues after the end token, unless stop_token_ids contains it", async () => {
    const ids = [...encode("a b"), END, ...encode("c d")];
    const target = await start({ says: ids });
    expect(await answer(target, {})).toMatchObject({ stop_reason: null, token_ids: ids.slice(0, ids.indexOf(END) + 1) });
    const on = await answer(target, { ignore_eos: true, max_tokens: ids.length });
    expect(on).toMatchObject({ finish_reason: "length", token_ids: ids, message: { content: "a bc d" } });
    const shown = await answer(target, { ignore_eos: true, max_tokens: ids.length, skip_special_tokens: false });
    expect(shown.message.content).toBe("a b<|end|>c d");
    expect(await answer(target, { ignore_eos: true, stop_token_ids: [END] })).toMatchObject({ finish_reason: "stop", stop_reason: END });
  });
  it("86: shows the end token only with include_stop_str_in_output and without skip_special_tokens", async () => {
    for (const [skip_special_tokens, content] of [
      [true, "hello"],
      [false, "hello<|end|>"],
    ] as const)
      expect((await answer(server, { include_stop_str_in_output: true, skip_special_tokens })).message.content).toBe(content);
    expect((await answer(server, { skip_special_tokens: false, spaces_between_special_tokens: false })).message.content).toBe("hello");
  });
  it("47, 48: a stop string is removed or kept, within one token and across tokens", async () => {
    const target = await start({ says: "a group of people organised." });
    for (const stop of [".", "group of peo", "gani"]) {
      const before = "a group of people organised.".split(stop)[0]!;
      expect(await answer(target, { stop })).toMatchObject({ finish_reason: "stop", stop_reason: stop, message: { content: before } });
      const kept = await answer(target, { stop, include_stop_str_in_output: true });
      expect(kept).toMatchObject({ finish_reason: "stop", stop_reason: stop, message: { content: before + stop } });
    }
  });
  it("52: matches stop strings only after min_tokens", async () => {
    const ids = encode("e f e g e h");
    const target = await start({ says: ids });
    const first = await answer(target, { stop: "e" });
    expect(first.message.content).toBe("");
    const least = first.token_ids.length;
    const later = await answer(target, { stop: "e", min_tokens: least });
    expect(later.token_ids.length).toBeGreaterThan(least);
    expect(later).toMatchObject({ stop_reason: "e", message: { content: "e f " } });
    expect((await answer(target, { stop: "e", min_tokens: least, include_stop_str_in_output: true })).message.content).toBe("e f e");
  });
});

describe("repetition", () => {
  it("57: detects a pattern that repeats often enough at the end", () => {
    const detection = { maxPatternSize: 3, minPatternSize: 2, minCount: 3 };
    expect(isRepeating([9, 1, 2, 3, 1, 2, 3, 1, 2, 3], detection)).toBe(true);
    expect(isRepeating([9, 1, 2, 3, 1, 2, 3], detection)).toBe(false);
    expect(isRepeating([1, 2, 3, 1, 2, 3, 1, 2, 4], detection)).toBe(false);
    expect(isRepeating([5, 5, 5], detection)).toBe(false);
    expect(isRepeating([5, 5, 5, 5, 5, 5], detection)).toBe(true);
    expect(isRepeating([7, 7], { maxPatternSize: 1, minPatternSize: 0, minCount: 2 })).toBe(true);
  });
  it("57: ends the output with its own finish reason", async () => {
    const [x, y] = [encode("x")[0]!, encode("y")[0]!];
    const target = await start({ says: [x, y, x, y, x, y, x, y] });
    const repetition_detection = { max_pattern_size: 2, min_pattern_size: 2, min_count: 3 };
    expect(await answer(target, { repetition_detection })).toMatchObject({
      finish_reason: "repetition",
      stop_reason: "repetition_detected",
      token_ids: [x, y, x, y, x, y],
      message: { content: "xyxyxy" },
    });
    expect((await answer(target, { repetition_detection, min_tokens: 7 })).token_ids).toHaveLength(7);
    expect((await answer(target, { repetition_detection: { max_pattern_size: 0 } })).finish_reason).toBe("stop");
    // Text withheld for a possible stop string is part of the answer.
    expect((await answer(target, { repetition_detection, stop: "xyz" })).message.content).toBe("xyxyxy");
  });
  it("59: rejects contradictory sizes", async () => {
    for (const repetition_detection of [
      { max_pattern_size: 2, min_pattern_size: 3, min_count: 2 },
      { max_pattern_size: 3, min_count: 1 },
      { max_pattern_size: -1, min_pattern_size: -2 },
    ])
      expect(await refusal({ repetition_detection })).toMatchObject({ status: 400, type: "BadRequestError", param: null });
  });
});

describe("tokens as token ids", () => {
  it("88: are shown in logprobs", async () => {
    const { choices } = await server.complete({
      ...HELLO,
      logprobs: true,
      top_logprobs: 2,
      return_tokens_as_token_ids: true,
      return_token_ids: true,
    });
    const { content } = choices[0].logprobs;
    expect(content.map((entry: any) => entry.token)).toEqual(choices[0].token_ids.map((id: number) => `token_id:${id}`));
    const [entry] = content;
    expect(entry.bytes).toEqual([...tokenizer.tokenBytes(choices[0].token_ids[0])]);
    expect(entry.top_logprobs.map((top: any) => top.bytes)).toEqual(entry.top_logprobs.map((top: any) => [...Buffer.from(top.token)]));
    expect(entry.top_logprobs).toHaveLength(2);
  });
  it("88: can be the default of the service, which a request can override", async () => {
    const naming = await start({ limits: { returnTokensAsTokenIds: true } });
    const first = async (body: object): Promise<string> =>
      (await naming.complete({ ...HELLO, logprobs: true, ...body })).choices[0].logprobs.content[0].token;
    expect(await first({})).toMatch(/^token_id:\d+$/);
    expect(await first({ return_tokens_as_token_ids: null })).toMatch(/^token_id:\d+$/);
    expect(await first({ return_tokens_as_token_ids: false })).not.toContain("token_id");
  });
});
