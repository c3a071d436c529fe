/** Cache of compiled graphs. */
import { Lru } from "../../../base/util/lru.ts";
import type { Program } from "./program.ts";

/** LRU cache of compiled graphs. Above its capacity, the least recently used graph is released. */
export class ProgramCache {
  readonly #programs: Lru<string, Promise<Program>>;
  #compiled = 0;

  /** @param capacity - Maximum number of graphs; each holds the memory of its largest run. */
  constructor(capacity: number) {
    this.#programs = new Lru({ maxEntries: capacity });
  }

  /** Number of compilations so far. */
  get compiled(): number {
    return this.#compiled;
  }

  /** Returns the program of a key, compiled at first use. A failed compilation is not cached. */
  get(key: string, compile: () => Promise<Program>): Promise<Program> {
    const known = this.#programs.get(key);
    if (known !== undefined) return known;
    this.#compiled++;
    const program = compile();
    this.#programs.set(key, program).forEach(release);
    program.catch(() => this.#programs.delete(key));
    return program;
  }

  /** Releases all programs. */
  clear(): void {
    this.#programs.clear().forEach(release);
  }
}

function release(program: Promise<Program>): void {
  void program.then((each) => each.release()).catch(() => {});
}
