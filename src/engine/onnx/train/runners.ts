/** Batch runners of a thread. */
import { getOrInsert } from "../../../base/util/values.ts";
import { BatchRunner } from "./batch-runner.ts";

/** Batch runners by the number of threads inside one op, created on first use. */
export class Runners {
  readonly #runners = new Map<number, BatchRunner>();
  #released = 0;

  /** Returns the runner with this many threads inside one op. */
  of(threads: number): BatchRunner {
    return getOrInsert(this.#runners, threads, () => new BatchRunner(threads));
  }

  /** Number of programs compiled so far. The first run of a program takes longer than later runs. */
  get compiled(): number {
    return [...this.#runners.values()].reduce((sum, { programs }) => sum + programs.compiled, this.#released);
  }

  /** Releases the programs of runners with any other thread count. */
  keep(threads: ReadonlySet<number>): void {
    for (const [each, { programs }] of this.#runners) {
      if (threads.has(each)) continue;
      this.#released += programs.compiled;
      programs.clear();
      this.#runners.delete(each);
    }
  }
}
