/** Checks that engines share of what they computed, or received from a server. */
import { NonFiniteError } from "../errors.ts";
import { firstNonFinite } from "../util/finite.ts";
import type { Logprobs } from "./port.ts";

/**
 * Checks the log-probabilities of a pass.
 *
 * @param explain - Further words for the message, called only for it. @default none
 * @throws NonFiniteError `E_NON_FINITE` naming row and token of the first that is NaN or infinite.
 */
export function requireFiniteLogprobs(logprobs: readonly Logprobs[], explain: () => string = () => ""): void {
  for (const [row, values] of logprobs.entries()) {
    const token = firstNonFinite(values);
    if (token >= 0)
      throw new NonFiniteError(`Expected finite log-probabilities, got ${values[token]} for token ${token} of row ${row}${explain()}`);
  }
}
