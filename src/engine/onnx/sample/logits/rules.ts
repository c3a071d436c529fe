/** Rules of one request that change logits before a token is chosen, and the sampled tokens that they depend on. */
import { UnsupportedError } from "../../../../base/errors.ts";
import type { SamplingParams } from "../../../port.ts";
import { addBias, penalizeFrequency, penalizePresence, penalizeRepetition } from "./adjust.ts";
import { ruleLists, type SentParams } from "./lists.ts";
import { allowOnly, ban, banSequences } from "./masks.ts";

/** Returns the parameters that are rules, with defaults filled in. */
function withDefaults(params: SamplingParams | SentParams) {
  return {
    lists: "lists" in params ? params.lists : ruleLists(params),
    minTokens: params.minTokens ?? 0,
    lateTokenIds: params.lateTokenIds ?? [],
    repetitionPenalty: params.repetitionPenalty ?? 1,
    frequencyPenalty: params.frequencyPenalty ?? 0,
    presencePenalty: params.presencePenalty ?? 0,
  };
}

type RuleParams = ReturnType<typeof withDefaults>;

/** Logit rules of one request; follows the sampled tokens. Most requests have no rules. */
export class LogitRules {
  /** Whether the rules depend on the zero point of the logits, so that log-probabilities cannot replace logits. */
  readonly needsLogits: boolean;
  readonly #params: RuleParams;
  /** Tokens of the prompt and the output; empty if no rule depends on them. */
  readonly #seen: Set<number>;
  readonly #counts = new Map<number, number>();
  readonly #outputs: number[] = [];

  private constructor(params: RuleParams, prompt: Int32Array) {
    this.#params = params;
    this.needsLogits = params.repetitionPenalty !== 1;
    this.#seen = new Set(this.needsLogits ? prompt : []);
  }

  /** Returns the rules of a request; null if it has none. */
  static of(params: SamplingParams | SentParams, prompt: Int32Array): LogitRules | null {
    const rules = withDefaults(params);
    const isPlain =
      rules.lists.allowed === null &&
      rules.lists.banned === null &&
      rules.lists.bias === null &&
      rules.minTokens === 0 &&
      rules.repetitionPenalty === 1 &&
      rules.frequencyPenalty === 0 &&
      rules.presencePenalty === 0;
    return isPlain ? null : new LogitRules(rules, prompt);
  }

  /**
   * Returns the logits after all rules, which are applied in the order of {@link SamplingParams}.
   *
   * @param logits - `[V]`, not modified; may be log-probabilities if {@link needsLogits} is false.
   * @throws UnsupportedError `E_UNSUPPORTED` if the rules leave no token.
   */
  apply(logits: Float32Array): Float32Array {
    const { lists, minTokens, lateTokenIds, repetitionPenalty, frequencyPenalty, presencePenalty } = this.#params;
    const changed = logits.slice();
    if (lists.allowed !== null) allowOnly(changed, lists.allowed);
    if (lists.banned !== null) banSequences(changed, lists.banned, this.#outputs);
    if (this.#outputs.length < minTokens) ban(changed, lateTokenIds);
    if (lists.bias !== null) addBias(changed, lists.bias);
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

  /** Records a sampled token. */
  record(id: number): void {
    this.#outputs.push(id);
    if (this.needsLogits) this.#seen.add(id);
    this.#counts.set(id, (this.#counts.get(id) ?? 0) + 1);
  }
}
