/** Generation of the choices of one request, each from its own iterator over the engine's tokens. */
import type { RequestGroup } from "../../../base/util/request-group.ts";
import { defaultMaxListeners, setMaxListeners } from "node:events";
import type { Engine, PolicyVersion, PromptToken, SampledToken, SamplingParams } from "../../../engine/port.ts";
import { EngineError } from "../../../base/errors.ts";
import { createDetokenizer, type ChatTokenizer, type Detokenizer } from "../../../text/tokenizer/index.ts";
import { choiceSeed } from "./admit.ts";
import { toWireLogprob, type WireLogprob } from "./logprobs.ts";
import { isRepeating } from "./repetition.ts";
import type { ChatRequest } from "../request/request.ts";
import type { ChatObserver } from "../../observability/observer.ts";
import { StopStrings, type StopResult } from "./stop-strings.ts";
import { onceAborted } from "../../../base/util/abort.ts";
import { last } from "../../../base/util/values.ts";

/** Inputs of {@link generate}, the same for all choices. */
export interface GenerationPlan {
  readonly engine: Engine;
  /** Observer of the chat completion; null for none. */
  readonly observer: ChatObserver | null;
  /** Group of the request in the engine, see `SamplingOptions.group`. */
  readonly group: RequestGroup;
  readonly policy: PolicyVersion;
  readonly tokenizer: ChatTokenizer;
  readonly request: ChatRequest;
  readonly promptIds: Int32Array;
  /** Sampling parameters of choice 0. */
  readonly params: SamplingParams;
  /** Whether log-probabilities name tokens by id. */
  readonly namesTokensById: boolean;
  /** Whether special tokens stay in the text. */
  readonly keepsSpecialTokens: boolean;
}

/** Reason for the end of a choice. */
export interface ChoiceEnd {
  readonly finishReason: "stop" | "length" | "repetition";
  /** The stop string, `repetition_detected`, or the id of a stop token other than the tokenizer's own end token; null otherwise. */
  readonly stopReason: string | number | null;
  /** Id of the stop token that ended the choice, the last of its ids; null for any other reason, and if a beam does not list the token. */
  readonly closedBy: number | null;
}

/** A finished choice. */
export interface GeneratedChoice extends ChoiceEnd {
  readonly index: number;
  readonly text: string;
  /** All sampled ids, including the stop token's; with beam search, the end token's id only with `include_stop_str_in_output`. */
  readonly ids: readonly number[];
  /** Log-probabilities, one entry per id; null if not requested. */
  readonly logprobs: readonly WireLogprob[] | null;
  /** Log-probabilities of the prompt's tokens except the first, for choice 0 only; null if not requested. */
  readonly promptTokens: readonly PromptToken[] | null;
  /** Number of prompt tokens that the engine found in its prefix cache. */
  readonly cachedTokens: number;
}

/** Token of a choice, as a stream shows it. */
export interface GeneratedToken {
  readonly index: number;
  readonly id: number;
  /** Text that became final with this token; may be empty. */
  readonly text: string;
  readonly logprob: WireLogprob | null;
  /** Reason for the end, set on the last token only. */
  readonly end: ChoiceEnd | null;
}

/** Options of {@link generate}. */
export interface GenerateOptions {
  /** Called with each token of each choice. */
  readonly onToken?: ((token: GeneratedToken) => void) | undefined;
  /** Called with each finished choice, after its engine slot is released. `onToken` gets its last token once the promise resolves. */
  readonly onChoice?: ((choice: GeneratedChoice) => Promise<void>) | undefined;
  readonly signal: AbortSignal;
}

/**
 * Returns the reason for a choice to end with its last token, null if generation continues. A stop string takes precedence over the reasons
 * of the engine.
 *
 * @param ids - All ids of the choice so far.
 * @param finish - Reason of the engine.
 * @param matched - Stop string that the last token completed; null for none.
 */
function endOf(plan: GenerationPlan, ids: readonly number[], finish: SampledToken["finish"], matched: string | null): ChoiceEnd | null {
  if (matched !== null) return { finishReason: "stop", stopReason: matched, closedBy: null };
  if (finish === "length") return { finishReason: "length", stopReason: null, closedBy: null };
  if (finish === "stop") {
    const id = last(ids);
    const isModelEnd = id === plan.tokenizer.eosTokenIds[0] && !plan.request.ignoreEos;
    return { finishReason: "stop", stopReason: isModelEnd ? null : id, closedBy: id };
  }
  const { repetitionDetection } = plan.request;
  const hasMinTokens = ids.length >= (plan.params.minTokens ?? 0);
  if (repetitionDetection !== null && hasMinTokens && isRepeating(ids, repetitionDetection))
    return { finishReason: "repetition", stopReason: "repetition_detected", closedBy: null };
  return null;
}

/** Incremental text of a choice. Holds back bytes of incomplete characters, and text that may begin a stop string. */
class ChoiceText {
  readonly #plan: GenerationPlan;
  readonly #detokenizer: Detokenizer;
  /** Search for stop strings; null for a request without any. */
  readonly #stopStrings: StopStrings | null;

  constructor(plan: GenerationPlan) {
    const { request } = plan;
    this.#plan = plan;
    this.#detokenizer = createDetokenizer(plan.tokenizer, { skipSpecialTokens: !plan.keepsSpecialTokens });
    this.#stopStrings = request.stop.length > 0 ? new StopStrings(request.stop, { isIncluded: request.includeStopStrInOutput }) : null;
  }

  /** Returns the text that became final with the last of `ids`, and the stop string that was completed by it. */
  push(ids: readonly number[], finish: SampledToken["finish"]): StopResult {
    // The text of a stop token is shown only on request.
    const isHidden = finish === "stop" && !this.#plan.request.includeStopStrInOutput;
    let text = isHidden ? "" : this.#detokenizer.push(last(ids));
    if (finish !== undefined) text += this.#detokenizer.flush();
    // Stop strings are not searched for within the first `minTokens` tokens.
    if (this.#stopStrings === null || ids.length <= (this.#plan.params.minTokens ?? 0)) return { text, matched: null };
    const result = this.#stopStrings.push(text);
    const isEnd = result.matched === null && finish !== undefined;
    return isEnd ? { text: result.text + this.#stopStrings.flush(), matched: null } : result;
  }

  /** Returns the text that is still held back, for a choice that ends without the engine's `finish`. */
  flush(): string {
    return this.#detokenizer.flush() + (this.#stopStrings?.flush() ?? "");
  }
}

/** Returns the whole text of a choice that was not decoded incrementally. */
function wholeText({ tokenizer, request, keepsSpecialTokens }: GenerationPlan, ids: readonly number[], end: ChoiceEnd): string {
  const shown = end.closedBy === null || request.includeStopStrInOutput ? ids : ids.slice(0, -1);
  return tokenizer.decode(shown, { skipSpecialTokens: !keepsSpecialTokens });
}

/** Returns the sampling parameters of one choice. Log-probabilities of the prompt are the same for all and requested for the first only. */
function paramsOf({ params }: GenerationPlan, index: number): SamplingParams {
  return index === 0 ? params : { ...params, seed: choiceSeed(params.seed, index), promptLogprobs: undefined };
}

/**
 * Generates one choice. Its last token is passed to `onToken` after `onChoice`, so that a stream ends only when the choice is concluded.
 */
async function generateChoice(
  plan: GenerationPlan,
  index: number,
  { onToken, onChoice, signal }: GenerateOptions,
): Promise<GeneratedChoice> {
  const { tokenizer, namesTokensById, observer } = plan;
  const { stop, topLogprobs } = plan.request;
  // Without a stop string or a listener the text is needed only at the end, and is decoded once.
  const incremental = onToken !== undefined || stop.length > 0 ? new ChoiceText(plan) : null;
  const ids: number[] = [];
  const logprobs: WireLogprob[] | null = topLogprobs === null ? null : [];
  let text = "";
  let promptTokens: readonly PromptToken[] | null = null;
  let cachedTokens = 0;
  let lastToken: GeneratedToken | null = null;

  const params = paramsOf(plan, index);
  for await (const token of plan.engine.sample(plan.policy, plan.promptIds, params, { signal, group: plan.group })) {
    observer?.token(index);
    ids.push(token.id);
    promptTokens ??= token.prompt ?? null;
    cachedTokens += token.cachedTokens ?? 0;
    const logprob = topLogprobs === null ? null : toWireLogprob(tokenizer, token, { count: topLogprobs, namesTokensById });
    if (logprob !== null) logprobs?.push(logprob);
    const result = incremental?.push(ids, token.finish);
    const end = endOf(plan, ids, token.finish, result?.matched ?? null);
    // At the end by a repetition, the engine has not finished the choice, and text may still be held back.
    const heldText = end?.finishReason === "repetition" ? incremental?.flush() : undefined;
    const piece = (result?.text ?? "") + (heldText ?? "");
    text += piece;
    if (end !== null) {
      lastToken = { index, id: token.id, text: piece, logprob, end };
      // Leaving the loop releases the engine slot.
      break;
    }
    onToken?.({ index, id: token.id, text: piece, logprob, end });
  }
  const end = lastToken?.end ?? null;
  if (lastToken === null || end === null) {
    signal.throwIfAborted();
    throw new EngineError(`The engine ended choice ${index} after ${ids.length} tokens without a finish`);
  }
  if (incremental === null) text = wholeText(plan, ids, end);
  const choice = { index, text, ids, logprobs, promptTokens, cachedTokens, ...end };
  observer?.choiceFinished({ index, text, finishReason: end.finishReason, tokens: ids.length, cachedTokens });
  await onChoice?.(choice);
  onToken?.(lastToken);
  return choice;
}

/**
 * Generates all choices of a request concurrently.
 *
 * If one choice fails, the others are aborted, and the promise is rejected after all of them have released their engine slots.
 *
 * @param plan - Inputs that are the same for all choices.
 * @param options - Callbacks and the signal that aborts all choices.
 * @returns Shape `[n]`, in order of index.
 * @throws EngineError if the engine ends a choice without a finish; any error of the engine; the signal's reason if it is aborted.
 */
export async function generate(plan: GenerationPlan, options: GenerateOptions): Promise<GeneratedChoice[]> {
  const { n } = plan.request;
  if (n === 1) return [await generateChoice(plan, 0, options)];
  const siblings = new AbortController();
  // One listener per choice is expected, not a leak.
  setMaxListeners(n + defaultMaxListeners, siblings.signal);
  const removeListener = onceAborted(options.signal, () => siblings.abort(options.signal.reason));
  /** Errors in the order of their occurrence. The later ones are mostly consequences of the abort. */
  const failures: unknown[] = [];
  const run = async (index: number): Promise<GeneratedChoice | null> => {
    try {
      return await generateChoice(plan, index, { ...options, signal: siblings.signal });
    } catch (error) {
      failures.push(error);
      siblings.abort(error);
      return null;
    }
  };
  try {
    const choices = await Promise.all(Array.from({ length: n }, (_, index) => run(index)));
    if (failures.length > 0) throw failures[0];
    return choices.filter((choice) => choice !== null);
  } finally {
    removeListener();
  }
}
