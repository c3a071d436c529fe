/** With how many threads the trainer computes: a choice for each kind of step, and what is compiled for those that may win. */
import { type Batch, positionsIn } from "./batch.ts";
import type { BatchModel } from "./batch-runner.ts";
import { Runners } from "./runners.ts";
import type { SecondThread } from "./second-thread.ts";
import { ThreadChoice } from "./threads.ts";

/** Steps that are computed alike: one choice serves them all. */
export interface StepKind {
  /** Whether two shares may be computed side by side, instead of batches one after the other. */
  readonly isSideBySide: boolean;
  readonly choice: ThreadChoice;
}

/** See the file header. One step after the other: programs are released between them. */
export class TrainerThreads {
  readonly runners = new Runners();
  readonly #candidates: readonly number[];
  readonly #second: () => SecondThread | undefined;
  readonly #kinds = new Map<string, StepKind>();

  /**
   * @param candidates - Counts of threads to choose among; a single one is kept.
   * @param second - The thread of the second share, where it is running.
   */
  constructor(candidates: readonly number[], second: () => SecondThread | undefined) {
    this.#candidates = candidates;
    this.#second = second;
  }

  /** The largest candidate. */
  get most(): number {
    return Math.max(...this.#candidates);
  }

  /** The kind of a step: it goes by the model's shape, what of it is trained, and how its batches are computed. */
  kindOf({ base, lora }: BatchModel, isSideBySide: boolean): StepKind {
    const key = JSON.stringify([base.config, lora?.rank ?? null, isSideBySide]);
    let kind = this.#kinds.get(key);
    if (kind === undefined) {
      // In shares an odd count is the even one below it: each share has half.
      const isOdd = (count: number) => isSideBySide && count > 1 && count % 2 === 1;
      const candidates = this.#candidates.length === 1 ? this.#candidates : this.#candidates.filter((count) => !isOdd(count));
      kind = { isSideBySide, choice: new ThreadChoice(candidates) };
      this.#kinds.set(key, kind);
    }
    return kind;
  }

  /**
   * Runs a part of a step with the threads whose turn it is.
   *
   * @param batches - What is computed in it, gradients included; null for what is not to be measured.
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

  /** Releases what was compiled for candidates that lost everywhere. */
  async #release(): Promise<void> {
    const [here, beside] = [new Set<number>(), new Set<number>()];
    for (const { isSideBySide, choice } of this.#kinds.values()) {
      for (const threads of [choice.current, choice.best]) {
        if (isSideBySide && threads > 1) beside.add(threadsPerShare(threads));
        here.add(isSideBySide ? threadsPerShare(threads) : threads);
      }
    }
    this.runners.keep(here);
    // A thread that died meanwhile has nothing left to release.
    await this.#second()
      ?.keep(beside)
      .catch(() => undefined);
  }
}

/** Threads inside one operation of each of two shares side by side: half of all, and at least one. */
export function threadsPerShare(threads: number): number {
  return Math.max(1, Math.floor(threads / 2));
}
