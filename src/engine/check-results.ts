/** Validation of results, computed or received from a server, shared by all engines. */
import { NonFiniteError } from "../base/errors.ts";
import { firstNonFinite } from "../base/util/finite.ts";
import type { Logprobs } from "./port.ts";

/**
 * Checks that the log-probabilities of a pass are finite.
 *
 * @param explain - Returns text to append to the error message; called only if there is an error. @default no text
 * @throws NonFiniteError `E_NON_FINITE` naming row and token of the first log-probability that is NaN or infinite.
 */
export function requireFiniteLogprobs(logprobs: readonly Logprobs[], explain: () => string = () => ""): void {
  for (const [row, values] of logprobs.entries()) {
    const token = firstNonFinite(values);
    if (token >= 0)
      throw new NonFiniteError(`Expected finite log-probabilities, got ${values[token]} for token ${token} of row ${row}${explain()}`);
  }
}
