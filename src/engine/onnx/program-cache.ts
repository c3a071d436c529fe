import type { Program } from "./runtime.ts";

/** Compiled graphs by key. The one that was not used for the longest is released when there are too many. */
export class ProgramCache {
  readonly #capacity: number;
  readonly #programs = new Map<string, Promise<Program>>();
  #compiled = 0;

  /** @param capacity - Graphs kept at most; each holds the memory of its largest run. */
  constructor(capacity: number) {
    this.#capacity = capacity;
  }

  /** How many were compiled so far. */
  get compiled(): number {
    return this.#compiled;
  }

  /** The program under `key`, compiled on first use. A failure is not remembered. */
  get(key: string, compile: () => Promise<Program>): Promise<Program> {
    const known = this.#programs.get(key);
    if (known === undefined) this.#compiled++;
    const program = known ?? compile();
    // A map iterates in order of insertion: what is used goes to the end.
    this.#programs.delete(key);
    this.#programs.set(key, program);
    program.catch(() => this.#programs.delete(key));
    for (const [oldest, evicted] of this.#programs) {
      if (this.#programs.size <= this.#capacity) break;
      this.#programs.delete(oldest);
      release(evicted);
    }
    return program;
  }

  /** Releases them all. */
  clear(): void {
    for (const program of this.#programs.values()) release(program);
    this.#programs.clear();
  }
}

function release(program: Promise<Program>): void {
  void program.then((each) => each.release()).catch(() => {});
}
