/** Sampling from a published policy. The protocol returns whole sequences, not a stream of tokens. */
import { EngineError, NonFiniteError, UnsupportedError } from "../../base/errors.ts";
import type { SampledToken, SamplingParams } from "../port.ts";
import { sampleAnswer, type TinkerSequence } from "./answers.ts";
import { decodeSample, type TinkerEncoding } from "./encoding.ts";
import { json, type TinkerTransport } from "./transport.ts";
import { zip } from "../../base/util/values.ts";

/** Weights that the server samples from. */
export type SamplingTarget = { readonly base_model: string } | { readonly model_path: string } | { readonly sampling_session_id: string };

/** Parameter that the protocol lacks. */
interface UnsupportedParam {
  readonly name: keyof SamplingParams;
  /** Name in requests to the service, for messages. */
  readonly field: string;
  /** Whether a value has no effect, so that it is accepted. */
  readonly isNeutral: (value: never) => boolean;
}

const UNSUPPORTED: readonly UnsupportedParam[] = [
  { name: "minP", field: "min_p", isNeutral: (value: number) => value === 0 },
  { name: "allowedTokenIds", field: "allowed_token_ids", isNeutral: () => false },
  { name: "bannedSequences", field: "bad_words", isNeutral: (value: readonly unknown[]) => value.length === 0 },
  { name: "minTokens", field: "min_tokens", isNeutral: (value: number) => value === 0 },
  // Has no effect without `minTokens`.
  { name: "lateTokenIds", field: "min_tokens", isNeutral: () => true },
  { name: "logitBias", field: "logit_bias", isNeutral: (value: ReadonlyMap<unknown, unknown>) => value.size === 0 },
  { name: "repetitionPenalty", field: "repetition_penalty", isNeutral: (value: number) => value === 1 },
  { name: "frequencyPenalty", field: "frequency_penalty", isNeutral: (value: number) => value === 0 },
  { name: "presencePenalty", field: "presence_penalty", isNeutral: (value: number) => value === 0 },
  { name: "promptLogprobs", field: "prompt_logprobs", isNeutral: () => false },
  { name: "priority", field: "priority", isNeutral: (value: bigint) => value === 0n },
  // The protocol cannot separate the prefix caches of callers, so a salt is refused.
  { name: "cacheSalt", field: "cache_salt", isNeutral: () => false },
];

/** Parameters that the protocol has. */
const SUPPORTED: ReadonlySet<string> = new Set(["maxTokens", "temperature", "topP", "topK", "seed", "stopTokenIds", "topLogprobs"]);

/**
 * Checks that a request uses only parameters that the protocol supports, or values without effect.
 *
 * @throws UnsupportedError `E_UNSUPPORTED` naming the request's field.
 */
export function checkSupported(params: SamplingParams): void {
  for (const [name, value] of Object.entries(params)) {
    if (SUPPORTED.has(name) || value === undefined) continue;
    const { field, isNeutral } = UNSUPPORTED.find((param) => param.name === name) ?? { field: name, isNeutral: () => false };
    if (!(isNeutral as (value: unknown) => boolean)(value))
      throw new UnsupportedError(`Models on a Tinker server are sampled without \`${field}\`; leave it out`, { param: field });
  }
}

/** Request for one sequence. */
export interface SampleRequest {
  readonly target: SamplingTarget;
  /** Number of earlier requests to the same target, which the protocol requires for a `sampling_session_id`. */
  readonly number: number;
  readonly prompt: Int32Array;
  readonly params: SamplingParams;
  readonly maxTokens: number;
}

/**
 * Samples one sequence.
 *
 * @throws NonFiniteError `E_NON_FINITE` if a log-probability is NaN; EngineError `E_ENGINE` if the server returns no tokens.
 */
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

/** Returns the tokens of a sequence; the last one has the reason why sampling stopped. */
function toTokens({ tokens, logprobs, stop_reason: reason }: TinkerSequence): SampledToken[] {
  if (tokens.length === 0 || tokens.length !== logprobs.length)
    throw new EngineError(`The Tinker server sampled ${tokens.length} tokens with ${logprobs.length} log-probabilities`);
  const firstNaN = logprobs.findIndex(Number.isNaN);
  if (firstNaN >= 0) throw new NonFiniteError(`The Tinker server gave NaN for the log-probability of sampled token ${firstNaN}`);
  return zip(tokens, logprobs).map(([id, logprob], i): SampledToken => {
    const token = { id, logprob, top: [] };
    return i === tokens.length - 1 ? { ...token, finish: reason } : token;
  });
}

/** Folds a 64-bit seed into the 31 bits that servers accept, so that different seeds rarely collide. */
export function toSeed(seed: bigint): number {
  const bits = BigInt.asUintN(64, seed);
  return Number((bits ^ (bits >> 31n) ^ (bits >> 62n)) & 0x7fff_ffffn);
}
