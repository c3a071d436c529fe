import type { ServiceLogger } from "../../logger.ts";

/** Maximum number of names that are remembered; clients may send any number of different names. */
const MAX_NAMES = 1000;
const MAX_NAME_LENGTH = 64;

/** Logger of request fields that have no effect; logs each field once. */
export class IgnoredFieldLog {
  readonly #message: string;
  readonly #seen = new Set<string>();

  /** @param message - Description of the problem with the fields. */
  constructor(message: string) {
    this.#message = message;
  }

  /** Logs the names that were not logged before. */
  report(names: readonly string[], logger: ServiceLogger | undefined): void {
    for (const name of names) {
      const short = name.slice(0, MAX_NAME_LENGTH);
      if (this.#seen.has(short) || this.#seen.size >= MAX_NAMES) continue;
      this.#seen.add(short);
      logger?.warn(this.#message, { field: short });
    }
  }
}
