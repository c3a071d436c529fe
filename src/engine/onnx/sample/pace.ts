/** How long prefill makes running rows wait, in decode steps: with a whole one nothing is left for what else may delay a token. */
const BUDGET_STEPS = 0.5;
/** The same in milliseconds where that is less. */
const LEAST_BUDGET_MS = 2;
/** Weight of the newest measurement. */
const NEWEST = 0.25;

/**
 * How fast a model prefills and decodes here, measured as it goes: it decides how much of a prompt is computed between two
 * tokens of the running rows. What is computed does not depend on it.
 */
export class Pace {
  #msPerPromptToken = 0;
  #msPerStep = 0;

  notePrefill(tokens: number, ms: number): void {
    this.#msPerPromptToken = blend(this.#msPerPromptToken, ms / tokens);
  }

  noteDecode(ms: number): void {
    this.#msPerStep = blend(this.#msPerStep, ms);
  }

  /** How long prefill may take between two decode steps, in milliseconds. */
  get budgetMs(): number {
    return Math.max(LEAST_BUDGET_MS, BUDGET_STEPS * this.#msPerStep);
  }

  /** How many tokens of prompts are computed in a time; at least 1. */
  promptTokensIn(ms: number): number {
    return this.#msPerPromptToken === 0 ? 1 : Math.max(1, Math.floor(ms / this.#msPerPromptToken));
  }
}

function blend(old: number, newest: number): number {
  return old === 0 ? newest : (1 - NEWEST) * old + NEWEST * newest;
}
