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

/** Choice that is being generated: the tokens so far and their text. */
class OpenChoice {
  readonly #plan: GenerationPlan;
  readonly #index: number;
  /** Text by token; null if the text is decoded once, at the end. */
  readonly #incremental: ChoiceText | null;
  readonly #ids: number[] = [];
  readonly #logprobs: WireLogprob[] = [];
  #text = "";
  #promptTokens: readonly PromptToken[] | null = null;
  #cachedTokens = 0;

  /** @param isShown - Whether each token is shown with its text. */
  constructor(plan: GenerationPlan, index: number, isShown: boolean) {
    this.#plan = plan;
    this.#index = index;
    // Without a stop string or a listener the text is needed only at the end.
    this.#incremental = isShown || plan.request.stop.length > 0 ? new ChoiceText(plan) : null;
  }

  /** Number of tokens so far. */
  get length(): number {
    return this.#ids.length;
  }

  /** Adds a token of the engine. Returns it as a stream shows it, with `end` if the choice ends with it. */
  add(token: SampledToken): GeneratedToken {
    this.#ids.push(token.id);
    this.#promptTokens ??= token.prompt ?? null;
    this.#cachedTokens += token.cachedTokens ?? 0;
    const logprob = this.#logprobOf(token);
    if (logprob !== null) this.#logprobs.push(logprob);
    const result = this.#incremental?.push(this.#ids, token.finish);
    const end = endOf(this.#plan, this.#ids, token.finish, result?.matched ?? null);
    // At the end by a repetition, the engine has not finished the choice, and text may still be held back.
    const heldText = end?.finishReason === "repetition" ? this.#incremental?.flush() : undefined;
    const text = (result?.text ?? "") + (heldText ?? "");
    this.#text += text;
    return { index: this.#index, id: token.id, text, logprob, end };
  }

  /** Returns the choice after its last token. */
  finish(end: ChoiceEnd): GeneratedChoice {
    return {
      index: this.#index,
      text: this.#incremental === null ? wholeText(this.#plan, this.#ids, end) : this.#text,
      ids: this.#ids,
      logprobs: this.#plan.request.topLogprobs === null ? null : this.#logprobs,
      promptTokens: this.#promptTokens,
      cachedTokens: this.#cachedTokens,
      ...end,
    };
  }

  /** Returns the log-probabilities of a token; null if not requested. */
  #logprobOf(token: SampledToken): WireLogprob | null {
    const { tokenizer, namesTokensById, request } = this.#plan;
    return request.topLogprobs === null ? null : toWireLogprob(tokenizer, token, { count: request.topLogprobs, namesTokensById });
  }
}

/**
 * Generates one choice. Its last token is passed to `onToken` after `onChoice`, so that a stream ends only when the choice is concluded.
 */
async function generateChoice(
  plan: GenerationPlan,
  index: number,
  { onToken, onChoice, signal }: GenerateOptions,
): Promise<GeneratedChoice> {
  const { engine, policy, promptIds, group, observer } = plan;
  const open = new OpenChoice(plan, index, onToken !== undefined);
  let lastToken: GeneratedToken | null = null;
  for await (const sampled of engine.sample(policy, promptIds, paramsOf(plan, index), { signal, group })) {
    observer?.token(index);
    const token = open.add(sampled);
    if (token.end !== null) {
      lastToken = token;
      // Leaving the loop releases the engine slot.
      break;
    }
    onToken?.(token);
  }
  const end = lastToken?.end ?? null;
  if (lastToken === null || end === null) {
    signal.throwIfAborted();
    throw new EngineError(`The engine ended choice ${index} after ${open.length} tokens without a finish`);
  }
  const choice = open.finish(end);
  const { text, ids, cachedTokens } = choice;
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
