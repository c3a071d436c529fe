import type { ActiveClients } from "./active-clients.ts";
import type { ModelConfig } from "../model/config.ts";
import { getOrInsert } from "../../../base/util/values.ts";

/**
 * Max delay of running rows by prefill, in decode steps, while fewer prompts wait than settled rows run. A whole step would leave no
 * margin for other delays of a token.
 */
const BUDGET_STEPS = 0.5;
/**
 * Max delay of running rows while more prompts wait than settled rows run, in milliseconds, if that is more than {@link CROWDED_STEPS}.
 */
const MAX_CROWDED_MS = 40;
/**
 * Max delay of running rows while more prompts wait than settled rows run, in decode steps. A step of few rows takes almost as long as a
 * step of many rows, so in a burst of requests the first rows would decode alone for as many steps.
 */
const CROWDED_STEPS = 16;
/** Max delay of running rows for each waiting request per settled row, in decode steps, while more prompts wait than settled rows run. */
const STEPS_PER_WAITING = 4;
/** Max delay of running rows by the prompts of a client without rows, in decode steps. */
const NEWCOMER_STEPS = 4;
/** Delay that prefill may always cause, in milliseconds, however short a decode step is. */
const MIN_BUDGET_MS = 2;
/** Max milliseconds of a turn, if {@link MIN_TURN_ROWS} rows decode in that time. */
const TURN_MS = 10;
/** Min rows of a turn, also if a large model needs more than {@link TURN_MS} for them: a step of fewer rows takes almost as long. */
const MIN_TURN_ROWS = 8;
/** Weight of the newest measurement in the moving average. */
const NEWEST = 0.25;
/** Max ratio of a piece to the largest measured piece. */
const MAX_GROWTH = 16;

/**
 * Rate limiter of prefill, based on the measured prefill and decode speed of a model on this machine. Determines how many prompt tokens are
 * computed between two tokens of the running rows; results do not depend on it.
 */
export class PrefillLimiter {
  readonly #prefill = new LinearCost();
  #msPerStep = 0;
  #msPerRow = 0;

  /** Records the time in which `tokens` prompt tokens were computed in one run. */
  notePrefill(tokens: number, ms: number): void {
    this.#prefill.add(tokens, ms);
  }

  /** Records the time of one decode step of `rows` rows. */
  noteDecode(rows: number, ms: number): void {
    this.#msPerStep = blend(this.#msPerStep, ms);
    this.#msPerRow = blend(this.#msPerRow, ms / rows);
  }

  /**
   * Max milliseconds of a turn: of a decode step or of a piece of prefill while several clients use the sampler. A client's first prompt
   * waits for the end of another one's turn.
   */
  get turnMs(): number {
    return Math.max(TURN_MS, MIN_TURN_ROWS * this.#msPerRow);
  }

  /** Number of rows that decode in one turn. */
  get turnRows(): number {
    return Math.floor(this.turnMs / this.#msPerRow);
  }

  /**
   * Returns the max milliseconds of prefill between two decode steps. The more prompts wait for each running row, the more time they get,
   * up to 40 ms or 16 steps: steps of few rows are expensive for each token. The prompts of a client without rows get 4 steps: most of the time, until
   * the client has a row, too.
   *
   * @param waiting - Number of waiting requests per settled row, see `Batches.settledRows`.
   * @param isNewcomer - True if the next prompt belongs to a client without rows while other clients have rows.
   */
  budgetMs(waiting: number, isNewcomer: boolean): number {
    const usual = Math.max(MIN_BUDGET_MS, (isNewcomer ? NEWCOMER_STEPS : BUDGET_STEPS) * this.#msPerStep);
    if (waiting <= 1) return usual;
    const crowded = Math.max(MAX_CROWDED_MS, CROWDED_STEPS * this.#msPerStep);
    return Math.max(usual, Math.min(crowded, waiting * STEPS_PER_WAITING * this.#msPerStep));
  }

  /** Returns the number of prompt tokens that can be computed in one run of `ms` milliseconds; at least 1. */
  promptTokensIn(ms: number): number {
    return Math.max(1, Math.floor(this.#prefill.countIn(ms)));
  }
}

/**
 * Cost of a run as a line, `fixed + perToken · tokens`, fitted by least squares with exponentially decaying weights. The fixed part of a
 * large model's run takes as long as some 40 tokens: the runtime reads the matrices and rearranges them for the products.
 */
class LinearCost {
  /** Weighted sums of 1, x, y, x² and x·y, for x tokens in y milliseconds. */
  #weight = 0;
  #x = 0;
  #y = 0;
  #xx = 0;
  #xy = 0;
  #largest = 0;

  add(tokens: number, ms: number): void {
    const kept = 1 - NEWEST;
    this.#weight = kept * this.#weight + 1;
    this.#x = kept * this.#x + tokens;
    this.#y = kept * this.#y + ms;
    this.#xx = kept * this.#xx + tokens * tokens;
    this.#xy = kept * this.#xy + tokens * ms;
    this.#largest = Math.max(this.#largest, tokens);
  }

  /** Returns how many tokens a run of `ms` milliseconds computes; 0 without a measurement. */
  countIn(ms: number): number {
    if (this.#weight === 0) return 0;
    const [x, y] = [this.#x / this.#weight, this.#y / this.#weight];
    const variance = this.#xx / this.#weight - x * x;
    const slope = variance > 0 ? (this.#xy / this.#weight - x * y) / variance : 0;
    // Runs of one size, or noise, do not show the fixed part: the cost is then taken as proportional.
    const perToken = slope > 0 && slope * x < y ? slope : y / x;
    const fixed = y - perToken * x;
    return Math.min((ms - fixed) / perToken, MAX_GROWTH * this.#largest);
  }
}

function blend(old: number, newest: number): number {
  return old === 0 ? newest : (1 - NEWEST) * old + NEWEST * newest;
}

/** Milliseconds of prefill in one run while no row is running; requests that arrive meanwhile wait until it ends. */
const SLICE_MS = 100;
/**
 * Tokens of a run that may take up to {@link MAX_SLICE_MS} instead, if a large model computes fewer in {@link SLICE_MS}: each run has costs
 * that do not depend on the number of tokens.
 */
const SLICE_TOKENS = 64;
const MAX_SLICE_MS = 400;

/** Settings of {@link PrefillLimiters}. */
export interface PrefillLimits {
  /** Max tokens of a piece. */
  readonly maxTokens: number;
  /** Min tokens of a piece, unless `maxTokens` is smaller. */
  readonly minPiece: number;
  /** Clients of the sampler; with several, a piece or a decode step takes at most one turn. */
  readonly clients: ActiveClients;
}

/** Limiters of a sampler, by model, and the number of tokens that it computes in one run. */
export class PrefillLimiters {
  readonly #limiters = new WeakMap<ModelConfig, PrefillLimiter>();
  readonly #limits: PrefillLimits;

  constructor(limits: PrefillLimits) {
    this.#limits = limits;
  }

  of(config: ModelConfig): PrefillLimiter {
    return getOrInsert(this.#limiters, config, () => new PrefillLimiter());
  }

  /** Returns the max number of prompt tokens to compute until `endMs`; null = no running row waits. */
  promptTokens(config: ModelConfig, endMs: number | null): number {
    const limiter = this.of(config);
    const tokens =
      endMs === null
        ? Math.max(limiter.promptTokensIn(SLICE_MS), Math.min(SLICE_TOKENS, limiter.promptTokensIn(MAX_SLICE_MS)))
        : limiter.promptTokensIn(endMs - performance.now());
    return Math.min(this.#limits.maxTokens, tokens);
  }

  /** Returns the max number of prompt tokens to compute in one run. */
  pieceTokens(config: ModelConfig, endMs: number | null): number {
    const { maxTokens, minPiece } = this.#limits;
    const limiter = this.of(config);
    const turn = this.#isShared ? limiter.promptTokensIn(limiter.turnMs) : Infinity;
    return Math.max(Math.min(minPiece, maxTokens), Math.min(turn, this.promptTokens(config, endMs)));
  }

  /** Returns the max number of rows to decode in one run. */
  decodeRows(config: ModelConfig): number {
    return this.#isShared ? this.of(config).turnRows : Infinity;
  }

  get #isShared(): boolean {
    return this.#limits.clients.areSeveral(performance.now());
  }
}
