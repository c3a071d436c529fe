/** Sampling from a published policy: whole sequences at once, as the protocol gives them. */
import { EngineError, NonFiniteError, UnsupportedError } from "../../errors.ts";
import type { SampledToken, SamplingParams } from "../port.ts";
import { sampleAnswer, type SampledSequence } from "./answers.ts";
import { decodeSample, type TinkerEncoding } from "./encoding.ts";
import { json, type TinkerTransport } from "./transport.ts";

/** Whom the server samples from. */
export type SamplingTarget = { readonly base_model: string } | { readonly model_path: string } | { readonly sampling_session_id: string };

/** The parameters the protocol has no place for, each with the value at which it changes nothing. */
const UNSUPPORTED: readonly (readonly [keyof SamplingParams, string, (value: never) => boolean])[] = [
  ["minP", "min_p", (value: number) => value === 0],
  ["allowedTokenIds", "allowed_token_ids", () => false],
  ["bannedSequences", "bad_words", (value: readonly unknown[]) => value.length === 0],
  ["minTokens", "min_tokens", (value: number) => value === 0],
  ["lateTokenIds", "min_tokens", () => true],
  ["logitBias", "logit_bias", (value: ReadonlyMap<unknown, unknown>) => value.size === 0],
  ["repetitionPenalty", "repetition_penalty", (value: number) => value === 1],
  ["frequencyPenalty", "frequency_penalty", (value: number) => value === 0],
  ["presencePenalty", "presence_penalty", (value: number) => value === 0],
  ["promptLogprobs", "prompt_logprobs", () => false],
  ["priority", "priority", (value: bigint) => value === 0n],
  // A salt keeps callers from noticing each other's prompts in a cache; who must not share gets no cache.
  ["cacheSalt", "cache_salt", () => false],
];

const CARRIED_OUT: ReadonlySet<string> = new Set(["maxTokens", "temperature", "topP", "topK", "seed", "stopTokenIds", "topLogprobs"]);

/**
 * Refuses what the protocol cannot say.
 *
 * @throws UnsupportedError `E_UNSUPPORTED` naming the request's field.
 */
export function checkSupported(params: SamplingParams): void {
  for (const [name, value] of Object.entries(params)) {
    if (CARRIED_OUT.has(name) || value === undefined) continue;
    const [, field, isNeutral] = UNSUPPORTED.find(([known]) => known === name) ?? ["", name, () => false];
    if (!(isNeutral as (value: unknown) => boolean)(value))
      throw new UnsupportedError(`Models on a Tinker server are sampled without \`${field}\`; leave it out`, { param: field });
  }
}

/** One request. `number` counts the requests of a sampler: the protocol wants it for samplers of a session. */
export interface SampleRequest {
  readonly target: SamplingTarget;
  readonly number: number;
  readonly prompt: Int32Array;
  readonly params: SamplingParams;
  readonly maxTokens: number;
}

/** Samples one sequence. */
export async function sampleSequence(
  transport: TinkerTransport,
  encoding: TinkerEncoding,
  { target, number, prompt, params, maxTokens }: SampleRequest,
  signal: AbortSignal | undefined,
): Promise<SampledToken[]> {
  const body = {
    ...target,
    ...("sampling_session_id" in target ? { seq_id: number } : {}),
    num_samples: 1,
    prompt: { chunks: [{ type: "encoded_text", tokens: [...prompt] }] },
    sampling_params: {
      max_tokens: maxTokens,
      temperature: params.temperature,
      top_p: params.topP,
      top_k: params.topK === 0 ? -1 : params.topK,
      seed: toSeed(params.seed),
      stop: params.stopTokenIds,
    },
    prompt_logprobs: false,
    topk_prompt_logprobs: 0,
    type: "sample",
  };
  const { request_id: request } = await transport.submit("asample", json(body), { signal });
  const accepts = encoding === "protobuf" ? { accepts: "application/x-protobuf" } : {};
  const answer = await transport.future(request, "Sample", { ...accepts, signal });
  const [sequence] = answer.isProtobuf ? decodeSample(answer.bytes) : transport.read(answer, sampleAnswer, "asample").sequences;
  if (sequence === undefined) throw new EngineError("The Tinker server sampled no sequence");
  return toTokens(sequence);
}

function toTokens({ tokens, logprobs, stop_reason: reason }: SampledSequence): SampledToken[] {
  if (tokens.length === 0 || tokens.length !== logprobs.length)
    throw new EngineError(`The Tinker server sampled ${tokens.length} tokens with ${logprobs.length} log-probabilities`);
  const broken = logprobs.findIndex(Number.isNaN);
  if (broken >= 0) throw new NonFiniteError(`The Tinker server gave NaN for the log-probability of sampled token ${broken}`);
  return tokens.map((id, i): SampledToken => {
    const token = { id, logprob: logprobs[i]!, top: [] };
    return i === tokens.length - 1 ? { ...token, finish: reason } : token;
  });
}

/** Servers take seeds of 31 bits; the others are folded in, so that two seeds that differ seldom meet. */
export function toSeed(seed: bigint): number {
  const bits = BigInt.asUintN(64, seed);
  return Number((bits ^ (bits >> 31n) ^ (bits >> 62n)) & 0x7fff_ffffn);
}
