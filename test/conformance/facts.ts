/** Properties of a server's model, determined by requests. */
import { expect } from "vitest";
import type { Target } from "./target.ts";

const numbersIn = (text: string): number[] => [...text.matchAll(/\d+/gu)].map(([digits]) => Number(digits));

/** Returns the maximum number of tokens of prompt and output together. */
export async function contextLength(target: Target): Promise<number> {
  const asked = 123_456_789;
  const { message } = await target.refused({ max_tokens: asked });
  const known = numbersIn(message).filter((number) => number !== asked);
  expect(known.length, message).toBeGreaterThan(0);
  return known[0]!;
}

/** Returns the vocabulary size. */
export async function vocabularySize(target: Target): Promise<number> {
  const asked = 99_999_999;
  const { message } = await target.refused({ logit_bias: { [asked]: 1 } });
  const known = numbersIn(message).filter((number) => number !== asked);
  expect(known.length, message).toBeGreaterThan(0);
  return Math.max(...known);
}

/** Text and tokens of an output. */
export interface Sample {
  readonly text: string;
  readonly ids: readonly number[];
  /** Texts of its tokens. */
  readonly tokens: readonly string[];
}

/** Returns a greedy output and its tokens. */
export async function greedySample(target: Target, body: object = {}): Promise<Sample> {
  const choice = await target.choice({
    temperature: 0,
    max_tokens: 24,
    ignore_eos: true,
    logprobs: true,
    return_token_ids: true,
    return_tokens_as_token_ids: false,
    ...body,
  });
  return { text: choice.message.content, ids: choice.token_ids, tokens: choice.logprobs.content.map((entry: any) => entry.token) };
}

/** Returns the token ids that a text adds to a prompt. */
export async function encodingOf(target: Target, text: string): Promise<number[]> {
  const promptOf = async (content: string): Promise<number[]> =>
    (await target.complete({ messages: [{ role: "user", content }], return_token_ids: true, max_tokens: 1 })).prompt_token_ids;
  const [without, ids] = [await promptOf(""), await promptOf(text)];
  const first = without.findIndex((id, at) => id !== ids[at]);
  return ids.slice(first, ids.length - (without.length - first));
}

/** Returns a seeded output without end tokens, and its tokens: many different ones, none special. */
export async function steadySample(target: Target): Promise<Sample & { readonly body: object }> {
  const body = {
    temperature: 1,
    seed: 11,
    max_tokens: 24,
    ignore_eos: true,
    logit_bias: { [await endToken(target)]: -100 },
    return_token_ids: true,
  };
  return { ...(await greedySample(target, body)), body };
}

const ends = new Map<string, Promise<number>>();

/** Returns the end-of-turn token of the model; requested once. Fails if the model never ends a turn. */
export function endToken(target: Target): Promise<number> {
  let end = ends.get(target.url);
  if (end === undefined) ends.set(target.url, (end = findEnd(target)));
  return end;
}

async function findEnd(target: Target): Promise<number> {
  for (let seed = 0; seed < 512; seed += 64) {
    const { choices } = await target.complete({ n: 64, seed, max_tokens: 24, return_token_ids: true });
    const ended = choices.find((choice: any) => choice.finish_reason === "stop");
    if (ended !== undefined) return ended.token_ids.at(-1);
  }
  throw new Error("Expected one of 512 outputs to end by itself");
}

/** Returns the number of distinct tokens divided by the length of an output; mean over 48 outputs. */
export async function variety(target: Target, body: object): Promise<number> {
  const { choices } = await target.complete({ n: 48, seed: 1, max_tokens: 24, ignore_eos: true, return_token_ids: true, ...body });
  const shares = choices.map(({ token_ids: ids }: any) => new Set(ids).size / ids.length);
  return shares.reduce((sum: number, share: number) => sum + share, 0) / shares.length;
}

/** Returns the text of a prompt without its first token, as decoded by the server. */
export async function promptText(target: Target, body: object): Promise<string> {
  const { prompt_logprobs: entries, prompt_token_ids: ids } = await target.complete({
    prompt_logprobs: 0,
    return_token_ids: true,
    max_tokens: 1,
    ...body,
  });
  return entries.map((entry: any, at: number) => entry?.[ids[at]]?.decoded_token ?? "").join("");
}
