/** Thread counts of a trainer: one choice per kind of step, and the programs compiled for the remaining candidates. */
import { type Batch, positionsIn } from "./batch.ts";
import type { BatchModel } from "./batch-runner.ts";
import { Runners } from "./runners.ts";
import type { SecondThread } from "./second-thread.ts";
import { ThreadChoice } from "./threads.ts";

/** Kind of steps that share one thread choice. */
export interface StepKind {
  /** Whether two data-parallel halves may run in parallel, instead of batches one after the other. */
  readonly isSideBySide: boolean;
  readonly choice: ThreadChoice;
}

/** Thread choices and batch runners of a trainer. Steps must run one after the other, because programs are released between them. */
export class TrainerThreads {
  readonly runners = new Runners();
  readonly #candidates: readonly number[];
  readonly #second: () => SecondThread | undefined;
  readonly #kinds = new Map<string, StepKind>();

  /**
   * @param candidates - Thread counts to choose from; a single one is used without timing.
   * @param second - Returns the helper thread, or undefined if it is not running.
   */
  constructor(candidates: readonly number[], second: () => SecondThread | undefined) {
    this.#candidates = candidates;
    this.#second = second;
  }

  /** Largest candidate. */
  get most(): number {
    return Math.max(...this.#candidates);
  }

  /** Returns the kind of a step, given by the model's shape, the adapter's rank if any, and whether its halves run in parallel. */
  kindOf({ base, lora }: BatchModel, isSideBySide: boolean): StepKind {
    const key = JSON.stringify([base.config, lora?.rank ?? null, isSideBySide]);
    let kind = this.#kinds.get(key);
    if (kind === undefined) {
      // With two halves, an odd count equals the even count below it: each half gets half of the threads.
      const isOdd = (count: number) => isSideBySide && count > 1 && count % 2 === 1;
      const candidates = this.#candidates.length === 1 ? this.#candidates : this.#candidates.filter((count) => !isOdd(count));
      kind = { isSideBySide, choice: new ThreadChoice(candidates) };
      this.#kinds.set(key, kind);
    }
    return kind;
  }

  /**
   * Runs a part of a step with the kind's current thread count. Times the run until the choice is settled.
   *
   * @param batches - Batches computed in this part, gradients included; null if the run must not be timed.
   * @param work - Computes the part with the given thread count.
   */
  async run<T>({ choice }: StepKind, batches: readonly Batch[] | null, work: (threads: number) => Promise<T>): Promise<T> {
    const computed = batches?.filter(({ families }) => families.some(({ trained }) => trained > 0)) ?? [];
    if (choice.isSettled || computed.length === 0) return work(choice.best);
    const threads = choice.current;
    const compiled = this.#compiled();
    const startMs = performance.now();
    const result = await work(threads);
    const ms = performance.now() - startMs;
    const tokens = computed.reduce((sum, batch) => sum + positionsIn(batch), 0);
    choice.note({ tokens, ms, hasCompiled: this.#compiled() > compiled });
    if (choice.current !== threads || choice.isSettled) await this.#release();
    return result;
  }

  #compiled(): number {
    return this.runners.compiled + (this.#second()?.compiled ?? 0);
  }

  /** Releases the programs of candidates that lost for every kind of step. */
  async #release(): Promise<void> {
    const [here, beside] = [new Set<number>(), new Set<number>()];
    for (const { isSideBySide, choice } of this.#kinds.values()) {
      for (const threads of [choice.current, choice.best]) {
        if (isSideBySide && threads > 1) beside.add(threadsPerShare(threads));
        here.add(isSideBySide ? threadsPerShare(threads) : threads);
      }
    }
    this.runners.keep(here);
    // A helper thread that has died has nothing to release.
    await this.#second()
      ?.keep(beside)
      .catch(() => undefined);
  }
}

/** Returns the threads inside one op of each of two parallel halves: half of all, and at least one. */
export function threadsPerShare(threads: number): number {
  return Math.max(1, Math.floor(threads / 2));
}
