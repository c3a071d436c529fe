/** Findings of `validate`, with examples of the affected scenarios or rewards. */
import type { ValidationCode, ValidationFinding } from "./validate.ts";

/** Max scenarios or rewards that a finding names. */
const MAX_EXAMPLES = 5;

/**
 * Returns a list with one finding about the given scenarios or rewards; an empty list if none are given.
 *
 * @param subjects - Ids of the affected scenarios, or names of the affected rewards.
 */
export function finding(
  code: ValidationCode,
  severity: ValidationFinding["severity"],
  subjects: readonly string[],
  message: string,
): ValidationFinding[] {
  return subjects.length === 0 ? [] : [{ code, severity, count: subjects.length, examples: subjects.slice(0, MAX_EXAMPLES), message }];
}
