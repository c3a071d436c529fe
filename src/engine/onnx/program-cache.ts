import type { Program } from "./runtime.ts";

/** Compiled graphs by key. The one that was not used for the longest is released when there are too many. */
export class ProgramCache {
  readonly #capacity: number;
  readonly #programs = new Map<string, Promise<Program>>();

  /** @param capacity - Graphs kept at most; each holds the memory of its largest run. */
  constructor(capacity: number) {
    this.#capacity = capacity;
  }

  /** The program under `key`, compiled on first use. A failure is not remembered. */
  get(key: string, compile: () => Promise<Program>): Promise<Program> {
    const program = this.#programs.get(key) ?? compile();
    // A map iterates in order of insertion: what is used goes to the end.
    this.#programs.delete(key);
    this.#programs.set(key, program);
    program.catch(() => this.#programs.delete(key));
    for (const [oldest, evicted] of this.#programs) {
      if (this.#programs.size <= this.#capacity) break;
      this.#programs.delete(oldest);
      void evicted.then((each) => each.release()).catch(() => {});
    }
    return program;
  }
}
