import type { ServiceLogger } from "../logger.ts";

/** Names remembered; clients make them up, so there must be an end. */
const MAX_NAMES = 1000;
const MAX_NAME_LENGTH = 64;

/** Logs each unknown field of chat bodies once. */
export class UnknownFieldLog {
  readonly #seen = new Set<string>();

  /** Logs the names that were not logged before. */
  report(names: readonly string[], logger: ServiceLogger | undefined): void {
    for (const name of names) {
      const short = name.slice(0, MAX_NAME_LENGTH);
      if (this.#seen.has(short) || this.#seen.size >= MAX_NAMES) continue;
      this.#seen.add(short);
      logger?.warn("A chat completion request carries a field that nothing here knows; it is ignored", { field: short });
    }
  }
}
