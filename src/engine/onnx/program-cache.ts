import type { Program } from "./runtime.ts";

/** LRU cache of compiled graphs. Above its capacity, the least recently used graph is released. */
export class ProgramCache {
  readonly #capacity: number;
  readonly #programs = new Map<string, Promise<Program>>();
  #compiled = 0;

  /** @param capacity - Maximum number of graphs; each holds the memory of its largest run. */
  constructor(capacity: number) {
    this.#capacity = capacity;
  }

  /** Number of compilations so far. */
  get compiled(): number {
    return this.#compiled;
  }

  /** Returns the program of a key, compiled at first use. A failed compilation is not cached. */
  get(key: string, compile: () => Promise<Program>): Promise<Program> {
    const known = this.#programs.get(key);
    if (known === undefined) this.#compiled++;
    const program = known ?? compile();
    // A Map iterates in insertion order, so inserting again moves the program to the end.
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

  /** Releases all programs. */
  clear(): void {
    for (const program of this.#programs.values()) release(program);
    this.#programs.clear();
  }
}

function release(program: Promise<Program>): void {
  void program.then((each) => each.release()).catch(() => {});
}
