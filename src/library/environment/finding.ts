import type { ValidationCode, ValidationFinding } from "./validate.ts";

/** Max scenarios or rewards that a finding names. */
const MAX_EXAMPLES = 5;

/**
 * Returns a list with one finding about the given scenarios or rewards; an empty list if none are given.
 *
 * @param places - Ids of the affected scenarios, or names of the affected rewards.
 */
export function finding(
  code: ValidationCode,
  severity: ValidationFinding["severity"],
  places: readonly string[],
  message: string,
): ValidationFinding[] {
  return places.length === 0 ? [] : [{ code, severity, count: places.length, examples: places.slice(0, MAX_EXAMPLES), message }];
}
