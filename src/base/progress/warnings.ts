/** Warnings by code, so that each sentence is printed once and later occurrences only raise its count. */
export class WarningCounts {
  readonly #counts = new Map<string, number>();

  /** Adds occurrences of a warning. @returns Whether the code is new. */
  add(code: string, count = 1): boolean {
    const known = this.#counts.get(code);
    this.#counts.set(code, (known ?? 0) + count);
    return known === undefined;
  }

  /** Returns the codes with their counts, such as `low-ess ×3, sampler-mismatch ×1`; null without warnings. */
  summary(): string | null {
    if (this.#counts.size === 0) return null;
    return [...this.#counts].map(([code, count]) => `${code} ×${count}`).join(", ");
  }
}
