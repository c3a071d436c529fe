import { ProgramCache } from "../runtime/program-cache.ts";
import { BatchRunner } from "./batch-runner.ts";

/** Max compiled graphs kept per thread count: a program runs only with the thread count it was compiled for. */
const MAX_PROGRAMS = 8;

/** Batch runners by the number of threads inside one op, created on first use. */
export class Runners {
  readonly #runners = new Map<number, { readonly runner: BatchRunner; readonly programs: ProgramCache }>();
  #released = 0;

  /** Returns the runner with this many threads inside one op. */
  of(threads: number): BatchRunner {
    let known = this.#runners.get(threads);
    if (known === undefined) {
      const programs = new ProgramCache(MAX_PROGRAMS);
      known = { runner: new BatchRunner(threads, programs), programs };
      this.#runners.set(threads, known);
    }
    return known.runner;
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
