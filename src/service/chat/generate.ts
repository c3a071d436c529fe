/** The choices of one request, each an iterator over the engine's tokens. */
import { defaultMaxListeners, setMaxListeners } from "node:events";
import type { Engine, PolicyVersion, PromptToken, SampledToken, SamplingParams } from "../../engine/port.ts";
import { EngineError } from "../../errors.ts";
import { createDetokenizer, type ChatTokenizer, type Detokenizer } from "../../tokenizer/index.ts";
import { choiceSeed } from "./admit.ts";
import { toWireLogprob, type WireLogprob } from "./logprobs.ts";
import { isRepeating, type RepetitionDetection } from "./repetition.ts";
import { StopStrings, type StopResult } from "./stop-strings.ts";

/** All that generating needs to know. */
export interface GenerationPlan {
  readonly engine: Engine;
  readonly policy: PolicyVersion;
  readonly tokenizer: ChatTokenizer;
  readonly promptIds: Int32Array;
  /** Parameters of choice 0. */
  readonly params: SamplingParams;
  readonly n: number;
  readonly stop: readonly string[];
  /** Whether the stop string, or the text of the stop token, stays at the end of the text. */
  readonly includesStop: boolean;
  /** Whether the tokenizer's own end, named as a stop token, is one like any other. */
  readonly ignoresEos: boolean;
  readonly repetitionDetection: RepetitionDetection | null;
  /** Alternatives per token, -1 for all; null for no logprobs. */
  readonly topLogprobs: number | null;
  /** Whether log-probabilities name tokens by their ids. */
  readonly namesTokensById: boolean;
  /** Whether special tokens stay in the text. */
  readonly keepsSpecialTokens: boolean;
}

/** Why a choice ended. */
export interface ChoiceEnd {
  readonly finishReason: "stop" | "length" | "repetition";
  /** The stop string, `repetition_detected`, or the id of a stop token that is not the tokenizer's own end; else null. */
  readonly stopReason: string | number | null;
  /** The stop token that ended the turn; null when anything else did. */
  readonly closedBy: number | null;
}

/** One finished choice. */
export interface GeneratedChoice extends ChoiceEnd {
  readonly index: number;
  readonly text: string;
  /** Every sampled id, that of a stop token included. */
  readonly ids: readonly number[];
  /** One entry per id, or null when not asked for. */
  readonly logprobs: readonly WireLogprob[] | null;
  /** The prompt's tokens but the first, of choice 0 alone; null when not asked for. */
  readonly promptTokens: readonly PromptToken[] | null;
  /** Tokens of the prompt that the engine did not have to compute. */
  readonly cachedTokens: number;
}

/** One token of a choice as a stream shows it. */
export interface GeneratedToken {
  readonly index: number;
  readonly id: number;
  /** Text that became certain with it; may be empty. */
  readonly text: string;
  readonly logprob: WireLogprob | null;
  /** Set on the last token. */
  readonly end: ChoiceEnd | null;
}

/** Options of {@link generate}. */
export interface GenerateOptions {
  /** Called with each token of each choice. */
  readonly onToken?: ((token: GeneratedToken) => void) | undefined;
  /** Called with each choice once it has released its engine slot; `onToken` gets its last token when the promise is settled. */
  readonly onChoice?: ((choice: GeneratedChoice) => Promise<void>) | undefined;
  readonly signal: AbortSignal;
}

/** Why a choice ends with its last token; null when it goes on. A stop string overrides what tokens say. */
function endOf(plan: GenerationPlan, ids: readonly number[], finish: SampledToken["finish"], matched: string | null): ChoiceEnd | null {
  if (matched !== null) return { finishReason: "stop", stopReason: matched, closedBy: null };
  if (finish === "length") return { finishReason: "length", stopReason: null, closedBy: null };
  if (finish === "stop") {
    const id = ids.at(-1)!;
    const isOwnEnd = id === plan.tokenizer.eosTokenIds[0] && !plan.ignoresEos;
    return { finishReason: "stop", stopReason: isOwnEnd ? null : id, closedBy: id };
  }
  const { repetitionDetection } = plan;
  if (repetitionDetection !== null && ids.length >= (plan.params.minTokens ?? 0) && isRepeating(ids, repetitionDetection))
    return { finishReason: "repetition", stopReason: "repetition_detected", closedBy: null };
  return null;
}

/** The text of a choice as its tokens come. */
class ChoiceText {
  readonly #plan: GenerationPlan;
  readonly #detokenizer: Detokenizer;
  readonly #stops: StopStrings | null;

  constructor(plan: GenerationPlan) {
    this.#plan = plan;
    this.#detokenizer = createDetokenizer(plan.tokenizer, { skipSpecialTokens: !plan.keepsSpecialTokens });
    this.#stops = plan.stop.length > 0 ? new StopStrings(plan.stop, { isIncluded: plan.includesStop }) : null;
  }

  /** The text that became certain with the last of `ids`, and the stop string that completed with it. */
  push(ids: readonly number[], finish: SampledToken["finish"]): StopResult {
    // The text of a token that ends the turn is shown only on request.
    let text = finish === "stop" && !this.#plan.includesStop ? "" : this.#detokenizer.push(ids.at(-1)!);
    if (finish !== undefined) text += this.#detokenizer.flush();
    // No stop string is looked for in the least that was asked for.
    if (this.#stops === null || ids.length <= (this.#plan.params.minTokens ?? 0)) return { text, matched: null };
    const result = this.#stops.push(text);
    return result.matched === null && finish !== undefined ? { text: result.text + this.#stops.flush(), matched: null } : result;
  }

  /** Ends the text where no token said so. */
  finish(): string {
    return this.#detokenizer.flush() + (this.#stops?.flush() ?? "");
  }
}

/** The whole text of a choice that nobody watched. */
function wholeText({ tokenizer, includesStop, keepsSpecialTokens }: GenerationPlan, ids: readonly number[], end: ChoiceEnd): string {
  return tokenizer.decode(end.closedBy === null || includesStop ? ids : ids.slice(0, -1), { skipSpecialTokens: !keepsSpecialTokens });
}

/** What one choice asks of the engine; the prompt is the same for all and scored for the first. */
function paramsOf({ params }: GenerationPlan, index: number): SamplingParams {
  return index === 0 ? params : { ...params, seed: choiceSeed(params.seed, index), promptLogprobs: undefined };
}

async function generateChoice(
  plan: GenerationPlan,
  index: number,
  { onToken, onChoice, signal }: GenerateOptions,
): Promise<GeneratedChoice> {
  const { tokenizer, namesTokensById } = plan;
  // Without a stop string or a listener nobody looks at the text before it is whole: it is decoded once.
  const watched = onToken !== undefined || plan.stop.length > 0 ? new ChoiceText(plan) : null;
  const ids: number[] = [];
  const logprobs: WireLogprob[] | null = plan.topLogprobs === null ? null : [];
  let text = "";
  let promptTokens: readonly PromptToken[] | null = null;
  let cachedTokens = 0;
  let last: GeneratedToken | null = null;

  const params = paramsOf(plan, index);
  for await (const token of plan.engine.sample(plan.policy, plan.promptIds, params, { signal })) {
    ids.push(token.id);
    promptTokens ??= token.prompt ?? null;
    cachedTokens += token.cachedTokens ?? 0;
    const logprob = logprobs === null ? null : toWireLogprob(tokenizer, token, { count: plan.topLogprobs!, namesTokensById });
    if (logprob !== null) logprobs!.push(logprob);
    const shown = watched?.push(ids, token.finish);
    const end = endOf(plan, ids, token.finish, shown?.matched ?? null);
    const piece = (shown?.text ?? "") + (end?.finishReason === "repetition" ? (watched?.finish() ?? "") : "");
    text += piece;
    if (end !== null) {
      last = { index, id: token.id, text: piece, logprob, end };
      // Leaving the loop gives the engine its slot back.
      break;
    }
    onToken?.({ index, id: token.id, text: piece, logprob, end });
  }
  const end = last?.end ?? null;
  if (last === null || end === null) {
    signal.throwIfAborted();
    throw new EngineError(`The engine ended choice ${index} after ${ids.length} tokens without a finish`);
  }
  if (watched === null) text = wholeText(plan, ids, end);
  const choice = { index, text, ids, logprobs, promptTokens, cachedTokens, ...end };
  await onChoice?.(choice);
  onToken?.(last);
  return choice;
}

/**
 * Generates all choices at once and waits for the last.
 *
 * When one fails the others are ended, and the promise is rejected only after all of them have given back their engine slots.
 *
 * @returns Shape `[n]`, in order of their index.
 * @throws whatever the engine throws; the signal's own reason when that was aborted.
 */
export async function generate(plan: GenerationPlan, options: GenerateOptions): Promise<GeneratedChoice[]> {
  if (plan.n === 1) return [await generateChoice(plan, 0, options)];
  const siblings = new AbortController();
  // Every choice listens to it: as many as there are choices are no leak.
  setMaxListeners(plan.n + defaultMaxListeners, siblings.signal);
  const end = (): void => siblings.abort(options.signal.reason);
  if (options.signal.aborted) end();
  options.signal.addEventListener("abort", end, { once: true });
  let failure: { readonly error: unknown } | null = null;
  const run = async (index: number): Promise<GeneratedChoice | null> => {
    try {
      return await generateChoice(plan, index, { ...options, signal: siblings.signal });
    } catch (error) {
      failure ??= { error };
      siblings.abort(error);
      return null;
    }
  };
  try {
    const choices = await Promise.all(Array.from({ length: plan.n }, (_, index) => run(index)));
    if (failure !== null) throw (failure as { readonly error: unknown }).error;
    return choices.filter((choice) => choice !== null);
  } finally {
    options.signal.removeEventListener("abort", end);
  }
}
