/** The rules of one request that change logits before a token is chosen, and what they remember of it. */
import { UnsupportedError } from "../../../../errors.ts";
import type { SamplingParams } from "../../../port.ts";
import { addBias, penalizeFrequency, penalizePresence, penalizeRepetition } from "./adjust.ts";
import { allowOnly, ban, banSequences } from "./masks.ts";

/** The parameters that are rules, with what stands for their absence. */
function filledIn(params: SamplingParams) {
  return {
    allowedTokenIds: params.allowedTokenIds,
    bannedSequences: params.bannedSequences ?? [],
    minTokens: params.minTokens ?? 0,
    lateTokenIds: params.lateTokenIds ?? [],
    logitBias: params.logitBias ?? new Map<number, number>(),
    repetitionPenalty: params.repetitionPenalty ?? 1,
    frequencyPenalty: params.frequencyPenalty ?? 0,
    presencePenalty: params.presencePenalty ?? 0,
  };
}

type RuleParams = ReturnType<typeof filledIn>;

/** See the file header. One per request; most requests have none. */
export class LogitRules {
  /** Whether the rules tell a logit from the same logit moved: then log-probabilities do not serve in their place. */
  readonly needsLogits: boolean;
  readonly #params: RuleParams;
  readonly #allowed: ReadonlySet<number> | null;
  /** Tokens of the prompt and the output; empty where nothing asks for them. */
  readonly #seen: Set<number>;
  readonly #counts = new Map<number, number>();
  readonly #outputs: number[] = [];

  private constructor(params: RuleParams, prompt: Int32Array) {
    this.#params = params;
    this.#allowed = params.allowedTokenIds === undefined ? null : new Set(params.allowedTokenIds);
    this.needsLogits = params.repetitionPenalty !== 1;
    this.#seen = new Set(this.needsLogits ? prompt : []);
  }

  /** The rules of a request; null when it has none. */
  static of(params: SamplingParams, prompt: Int32Array): LogitRules | null {
    const rules = filledIn(params);
    const isPlain =
      rules.allowedTokenIds === undefined &&
      rules.bannedSequences.length === 0 &&
      rules.minTokens === 0 &&
      rules.logitBias.size === 0 &&
      rules.repetitionPenalty === 1 &&
      rules.frequencyPenalty === 0 &&
      rules.presencePenalty === 0;
    return isPlain ? null : new LogitRules(rules, prompt);
  }

  /**
   * The logits after all rules, in the order in which they are applied.
   *
   * @param logits - `[V]`, left as it is; log-probabilities where {@link needsLogits} is false.
   * @throws UnsupportedError `E_UNSUPPORTED` when the rules leave no token.
   */
  apply(logits: Float32Array): Float32Array {
    const { bannedSequences, minTokens, lateTokenIds, logitBias, repetitionPenalty, frequencyPenalty, presencePenalty } = this.#params;
    const changed = logits.slice();
    if (this.#allowed !== null) allowOnly(changed, this.#allowed);
    banSequences(changed, bannedSequences, this.#outputs);
    if (this.#outputs.length < minTokens) ban(changed, lateTokenIds);
    addBias(changed, logitBias);
    if (repetitionPenalty !== 1) penalizeRepetition(changed, this.#seen, repetitionPenalty);
    if (frequencyPenalty !== 0) penalizeFrequency(changed, this.#counts, frequencyPenalty);
    if (presencePenalty !== 0) penalizePresence(changed, this.#counts, presencePenalty);
    if (!changed.some((logit) => logit > -Infinity)) {
      throw new UnsupportedError(
        `The allowed tokens, the banned ones and the least number of tokens together leave no token to sample after ${this.#outputs.length}; allow more tokens`,
      );
    }
    return changed;
  }

  /** Notes that a token was sampled. */
  note(id: number): void {
    this.#outputs.push(id);
    if (this.needsLogits) this.#seen.add(id);
    this.#counts.set(id, (this.#counts.get(id) ?? 0) + 1);
  }
}
