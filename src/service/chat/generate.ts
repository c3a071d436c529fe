/** The choices of one request, each an iterator over the engine's tokens. */
import { defaultMaxListeners, setMaxListeners } from "node:events";
import type { Engine, PolicyVersion, SamplingParams } from "../../engine/port.ts";
import { EngineError } from "../../errors.ts";
import { createDetokenizer, type ChatTokenizer } from "../../tokenizer/index.ts";
import { choiceSeed } from "./admit.ts";
import { toWireLogprob, type WireLogprob } from "./logprobs.ts";
import { StopStrings } from "./stop-strings.ts";

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
  /** Alternatives per token, -1 for all; null for no logprobs. */
  readonly topLogprobs: number | null;
  /** Whether special tokens stay in the text: a vocabulary may spell its tool calls with them. */
  readonly keepsSpecialTokens: boolean;
}

/** Why a choice ended. */
export interface ChoiceEnd {
  readonly finishReason: "stop" | "length";
  /** The stop string, or the id of a stop token that is not the tokenizer's own end; else null. */
  readonly stopReason: string | number | null;
  /** The token that ended the turn; null when the limit or a stop string did. */
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
  /** Called with each choice once it has given back its engine slot, before `onToken` is with its last token. */
  readonly onChoice?: ((choice: GeneratedChoice) => void) | undefined;
  readonly signal: AbortSignal;
}

function endOf(plan: GenerationPlan, id: number, finish: "stop" | "length" | undefined, matched: string | null): ChoiceEnd | null {
  if (matched !== null) return { finishReason: "stop", stopReason: matched, closedBy: null };
  if (finish === undefined) return null;
  if (finish === "length") return { finishReason: "length", stopReason: null, closedBy: null };
  return { finishReason: "stop", stopReason: id === plan.tokenizer.eosTokenIds[0] ? null : id, closedBy: id };
}

async function generateChoice(
  plan: GenerationPlan,
  index: number,
  { onToken, onChoice, signal }: GenerateOptions,
): Promise<GeneratedChoice> {
  const { tokenizer } = plan;
  const skipSpecialTokens = !plan.keepsSpecialTokens;
  // Without a stop string or a listener nobody looks at the text before it is whole: it is decoded once.
  const detokenizer = onToken !== undefined || plan.stop.length > 0 ? createDetokenizer(tokenizer, { skipSpecialTokens }) : null;
  const stops = plan.stop.length > 0 ? new StopStrings(plan.stop) : null;
  const ids: number[] = [];
  const logprobs: WireLogprob[] | null = plan.topLogprobs === null ? null : [];
  let text = "";
  let last: GeneratedToken | null = null;

  const params = index === 0 ? plan.params : { ...plan.params, seed: choiceSeed(plan.params.seed, index) };
  for await (const token of plan.engine.sample(plan.policy, plan.promptIds, params, { signal })) {
    ids.push(token.id);
    const logprob = logprobs === null ? null : toWireLogprob(tokenizer, token, plan.topLogprobs!);
    if (logprob !== null) logprobs!.push(logprob);
    let piece = "";
    let matched: string | null = null;
    if (detokenizer !== null) {
      // The text of a token that ends the turn is never shown.
      if (token.finish !== "stop") piece = detokenizer.push(token.id);
      if (token.finish !== undefined) piece += detokenizer.flush();
      if (stops !== null) {
        ({ text: piece, matched } = stops.push(piece));
        if (matched === null && token.finish !== undefined) piece += stops.flush();
      }
      text += piece;
    }
    const end = endOf(plan, token.id, token.finish, matched);
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
  if (detokenizer === null) text = tokenizer.decode(end.closedBy === null ? ids : ids.slice(0, -1), { skipSpecialTokens });
  const choice = { index, text, ids, logprobs, ...end };
  onChoice?.(choice);
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
