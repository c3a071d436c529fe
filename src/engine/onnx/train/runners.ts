import { ProgramCache } from "../program-cache.ts";
import { BatchRunner } from "./batch-runner.ts";

/** Compiled graphs kept for each number of threads: a program belongs to the threads it was compiled for. */
const MAX_PROGRAMS = 8;

/** Batch runners by the threads inside one of their operations, made when they are first asked for. */
export class Runners {
  readonly #runners = new Map<number, { readonly runner: BatchRunner; readonly programs: ProgramCache }>();
  #released = 0;

  of(threads: number): BatchRunner {
    let known = this.#runners.get(threads);
    if (known === undefined) {
      const programs = new ProgramCache(MAX_PROGRAMS);
      known = { runner: new BatchRunner(threads, programs), programs };
      this.#runners.set(threads, known);
    }
    return known.runner;
  }

  /** How many programs were compiled so far: the first run of one takes longer than those after it. */
  get compiled(): number {
    return [...this.#runners.values()].reduce((sum, { programs }) => sum + programs.compiled, this.#released);
  }

  /** Releases the programs of all other runners. */
  keep(threads: ReadonlySet<number>): void {
    for (const [each, { programs }] of this.#runners) {
      if (threads.has(each)) continue;
      this.#released += programs.compiled;
      programs.clear();
      this.#runners.delete(each);
    }
  }
}
