import type { ValidationCode, ValidationFinding } from "./validate.ts";

const MAX_EXAMPLES = 5;

/** Returns a finding about the given scenarios or rewards; none without any. */
export function finding(
  code: ValidationCode,
  severity: ValidationFinding["severity"],
  places: readonly string[],
  message: string,
): ValidationFinding[] {
  return places.length === 0 ? [] : [{ code, severity, count: places.length, examples: places.slice(0, MAX_EXAMPLES), message }];
}
