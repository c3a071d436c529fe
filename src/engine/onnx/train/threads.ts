/** How many threads a kind of step is computed with: tried on the batches of the first steps, which compute the same bits with any. */
import type { ThreadReport } from "../../port.ts";
import { MOST_THREADS } from "../thread-bits.ts";

/** A candidate has so many runs that count at least … */
const MIN_RUNS = 2;
/** … and is measured once they took this long, or were so many. */
const ENOUGH_MS = 250;
const ENOUGH_RUNS = 6;
/** Runs of a candidate, those included that do not count because something was compiled in them. */
const MAX_RUNS = 10;
/** What all trials together may take before the best so far is taken. */
const BUDGET_MS = 30_000;
/** A number of threads is as good as a faster one if this much of its rate is reached: it leaves more to others. */
const AS_GOOD = 0.97;

/** The counts that are tried on a machine: one thread, two, and as many as it has processors, at most four. */
export function threadCandidates(processors: number): number[] {
  const most = Math.min(MOST_THREADS, processors);
  return [...new Set([1, Math.min(2, most), most])];
}

/** What a run of the present candidate was. */
export interface ThreadTrial {
  /** Padded tokens that were computed. */
  readonly tokens: number;
  readonly ms: number;
  /** Whether something was compiled in it: its time is then none to compare, but it was spent. */
  readonly hasCompiled: boolean;
}

/**
 * The choice for one kind of step. It goes from the most threads to the fewest and ends with the first count that is slower than
 * one before it: where fewer threads lose, still fewer lose more, and theirs would be the longest trials.
 */
export class ThreadChoice {
  readonly #rest: number[];
  readonly #rates = new Map<number, number>();
  #current: number;
  #best: number;
  #isSettled: boolean;
  #spentMs = 0;
  #runs = 0;
  #counted = { runs: 0, tokens: 0, ms: 0 };

  /** @param candidates - Counts of threads, at least one; a single one is kept and never measured. */
  constructor(candidates: readonly number[]) {
    const [most, ...rest] = candidates.toSorted((a, b) => b - a) as [number, ...number[]];
    this.#current = this.#best = most;
    this.#rest = rest;
    this.#isSettled = rest.length === 0;
  }

  /** The count to compute with: the candidate that is being tried, in the end the one chosen. */
  get current(): number {
    return this.#current;
  }

  /** The count for what is not measured: the best so far, and before there is one the most. */
  get best(): number {
    return this.#best;
  }

  get isSettled(): boolean {
    return this.#isSettled;
  }

  get report(): ThreadReport {
    const rates = [...(this.#isSettled ? this.#rates : [])].map(([threads, tokensPerSecond]) => ({ threads, tokensPerSecond }));
    return { threads: this.#current, rates: rates.toSorted((a, b) => a.threads - b.threads) };
  }

  /** Tells of a run with `current` threads; nothing once the choice is made. */
  note({ tokens, ms, hasCompiled }: ThreadTrial): void {
    if (this.#isSettled) return;
    this.#spentMs += ms;
    this.#runs++;
    const counted = this.#counted;
    if (!hasCompiled) Object.assign(counted, { runs: counted.runs + 1, tokens: counted.tokens + tokens, ms: counted.ms + ms });
    const isMeasured = counted.runs >= MIN_RUNS && (counted.ms >= ENOUGH_MS || counted.runs >= ENOUGH_RUNS);
    if (isMeasured || this.#runs >= MAX_RUNS || this.#spentMs >= BUDGET_MS) this.#judge();
  }

  /** Ends the trial of the present candidate. */
  #judge(): void {
    const { tokens, ms } = this.#counted;
    let isSlower = false;
    if (ms > 0) {
      const fastest = Math.max(...this.#rates.values());
      const rate = (1000 * tokens) / ms;
      this.#rates.set(this.#current, rate);
      isSlower = rate < AS_GOOD * fastest;
      if (!isSlower) this.#best = this.#current;
    }
    const next = this.#rest.shift();
    this.#isSettled = isSlower || next === undefined || this.#spentMs >= BUDGET_MS;
    this.#current = this.#isSettled ? this.#best : next!;
    this.#runs = 0;
    this.#counted = { runs: 0, tokens: 0, ms: 0 };
  }
}
