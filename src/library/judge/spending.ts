/** Tokens and cost of judging, recorded as metrics of the judged rollout or group. */
import type { Usage } from "../../base/schema/index.ts";
import { costOf, type JudgePrices } from "./model.ts";

/** Tokens, cached answers and repeated questions of one value of a judge; a value may take several requests. */
export class Spending {
  readonly #prices: JudgePrices | undefined;
  #promptTokens = 0;
  #completionTokens = 0;
  #cached = 0;
  #retries = 0;

  constructor(prices: JudgePrices | undefined) {
    this.#prices = prices;
  }

  /** Counts the tokens of an answered request. */
  addUsage(usage: Partial<Usage> | null | undefined): void {
    this.#promptTokens += usage?.prompt_tokens ?? 0;
    this.#completionTokens += usage?.completion_tokens ?? 0;
  }

  /** Counts an answer from the cache. */
  addCached(): void {
    this.#cached++;
  }

  /** Counts a repeated question after an invalid answer. */
  addRetry(): void {
    this.#retries++;
  }

  /** Returns the counts as metrics; `judge/cost_usd` only with prices. */
  metrics(): Record<string, number> {
    const usage = { prompt_tokens: this.#promptTokens, completion_tokens: this.#completionTokens };
    return {
      "judge/prompt_tokens": this.#promptTokens,
      "judge/completion_tokens": this.#completionTokens,
      ...(this.#prices === undefined ? {} : { "judge/cost_usd": costOf(this.#prices, usage) }),
      "judge/cached": this.#cached,
      "judge/retries": this.#retries,
    };
  }
}
