/** Thread count of a kind of step, chosen by timing the batches of the first steps. Results are bit-identical for every count. */
import type { ThreadReport } from "../../port.ts";
import { MAX_THREADS } from "../runtime/thread-limits.ts";

/** Min timed runs per candidate, unless the trial ends by another limit; runs that compiled something are not timed. */
const MIN_TIMED_RUNS = 2;
/** Stop timing a candidate after this many milliseconds of at least {@link MIN_TIMED_RUNS} timed runs. */
const ENOUGH_TIMED_MS = 250;
/** Stop timing a candidate after this many timed runs. */
const MAX_TIMED_RUNS = 6;
/** Max runs per candidate, runs that compiled something included. */
const MAX_RUNS = 10;
/** Max milliseconds of all trials together; then the best candidate so far is chosen. */
const BUDGET_MS = 30_000;
/** Fraction of the fastest rate from which a lower thread count is the better choice: it leaves more processors to others. */
const RATE_TOLERANCE = 0.97;

/** Returns the thread counts to try on a machine: 1, 2 and the number of processors, none above the processors or {@link MAX_THREADS}. */
export function threadCandidates(processors: number): number[] {
  const max = Math.min(MAX_THREADS, processors);
  return [...new Set([1, Math.min(2, max), max])];
}

/**
 * Returns the candidates that are worth timing. A step in two parallel halves uses an odd count like the even count below it, because each
 * half gets half of the threads; a single candidate is kept as it is.
 */
export function distinctCandidates(candidates: readonly number[], isSideBySide: boolean): readonly number[] {
  if (!isSideBySide || candidates.length === 1) return candidates;
  return [...new Set(candidates.map((count) => (count === 1 || count % 2 === 0 ? count : count - 1)))];
}

/** Run of the current candidate. */
export interface ThreadTrial {
  /** Padded tokens computed. */
  readonly tokens: number;
  readonly ms: number;
  /** Whether something was compiled during the run. Its time then counts toward the budget but not toward the rate. */
  readonly hasCompiled: boolean;
}

/**
 * Thread choice for one kind of step. Tries candidates from the most threads to the fewest and ends with the first candidate with less than
 * {@link RATE_TOLERANCE} of the fastest rate: fewer threads would be slower still, and their trials would take longest.
 */
export class ThreadChoice {
  /** Candidates that were not tried yet, most threads first. */
  readonly #rest: number[];
  /** Measured tokens per second, by thread count. */
  readonly #rates = new Map<number, number>();
  #current: number;
  #best: number;
  #isSettled: boolean;
  /** Milliseconds of all trials. */
  #spentMs = 0;
  /** Runs of the current candidate, untimed ones included. */
  #runs = 0;
  /** Timed runs of the current candidate. */
  #counted = { runs: 0, tokens: 0, ms: 0 };

  /** @param candidates - Thread counts, at least one; a single candidate is chosen without timing. */
  constructor(candidates: readonly number[]) {
    const [max, ...rest] = candidates.toSorted((a, b) => b - a) as [number, ...number[]];
    this.#current = this.#best = max;
    this.#rest = rest;
    this.#isSettled = rest.length === 0;
  }

  /** Thread count to compute with: the candidate being tried, or the chosen count once settled. */
  get current(): number {
    return this.#current;
  }

  /** Thread count for runs that {@link record} does not see: the best candidate so far, or the largest before any is timed. */
  get best(): number {
    return this.#best;
  }

  /** Whether the choice is made. */
  get isSettled(): boolean {
    return this.#isSettled;
  }

  /** Thread count in use and, once settled, the measured rates, fewest threads first. */
  get report(): ThreadReport {
    const rates = [...(this.#isSettled ? this.#rates : [])].map(([threads, tokensPerSecond]) => ({ threads, tokensPerSecond }));
    return { threads: this.#current, rates: rates.toSorted((a, b) => a.threads - b.threads) };
  }

  /** Records a run with `current` threads; does nothing once the choice is settled. */
  record({ tokens, ms, hasCompiled }: ThreadTrial): void {
    if (this.#isSettled) return;
    this.#spentMs += ms;
    this.#runs++;
    const counted = this.#counted;
    if (!hasCompiled) {
      counted.runs++;
      counted.tokens += tokens;
      counted.ms += ms;
    }
    const isMeasured = counted.runs >= MIN_TIMED_RUNS && (counted.ms >= ENOUGH_TIMED_MS || counted.runs >= MAX_TIMED_RUNS);
    if (isMeasured || this.#runs >= MAX_RUNS || this.#spentMs >= BUDGET_MS) this.#judge();
  }

  /** Ends the trial of the current candidate. */
  #judge(): void {
    const { tokens, ms } = this.#counted;
    let isSlower = false;
    if (ms > 0) {
      // -Infinity for the first candidate, which is never slower.
      const fastest = Math.max(...this.#rates.values());
      const rate = (1000 * tokens) / ms;
      this.#rates.set(this.#current, rate);
      isSlower = rate < RATE_TOLERANCE * fastest;
      if (!isSlower) this.#best = this.#current;
    }
    const next = this.#rest.shift();
    const isSettled = isSlower || next === undefined || this.#spentMs >= BUDGET_MS;
    this.#isSettled = isSettled;
    this.#current = isSettled ? this.#best : next;
    this.#runs = 0;
    this.#counted = { runs: 0, tokens: 0, ms: 0 };
  }
}
