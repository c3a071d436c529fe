import { uniform } from "../../src/base/util/rng.ts";

/** Random draws of an exercise: the k-th draw is a pure function of (seed, index, k). */
export class Draws {
  readonly #seed: bigint;
  readonly #index: number;
  #count = 0;

  constructor(seed: number, index: number) {
    this.#seed = BigInt(seed);
    this.#index = index;
  }

  /** Returns a uniform number in (0, 1). */
  fraction(): number {
    return uniform(this.#seed, this.#index, this.#count++);
  }

  /** Returns a uniform integer in [low, high]. */
  integer(low: number, high: number): number {
    return low + Math.floor(this.fraction() * (high - low + 1));
  }

  chance(probability: number): boolean {
    return this.fraction() < probability;
  }

  pick<T>(items: readonly T[]): T {
    return items[this.integer(0, items.length - 1)] as T;
  }

  /** Returns `count` distinct items in random order. */
  some<T>(items: readonly T[], count: number): T[] {
    const rest = [...items];
    return Array.from({ length: count }, () => rest.splice(this.integer(0, rest.length - 1), 1)[0] as T);
  }

  /** Returns `low` to `high` random letters a to z. */
  letters(low: number, high: number): string {
    return Array.from({ length: this.integer(low, high) }, () => String.fromCharCode(97 + this.integer(0, 25))).join("");
  }

  /** Returns `low` to `high` random digits. */
  digits(low: number, high: number): string {
    return Array.from({ length: this.integer(low, high) }, () => String(this.integer(0, 9))).join("");
  }
}
