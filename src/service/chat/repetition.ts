import { ArgumentError } from "../../errors.ts";

/** Criteria for output that repeats itself. */
export interface RepetitionDetection {
  /** Maximum number of tokens in a repeated pattern. */
  readonly maxPatternSize: number;
  /** Minimum number of tokens in a repeated pattern. */
  readonly minPatternSize: number;
  /** Number of consecutive occurrences at the end of the output. */
  readonly minCount: number;
}

/**
 * Validates the repetition detection of a request.
 *
 * @returns The same criteria; null if detection is off.
 * @throws ArgumentError `E_ARGUMENT` for negative sizes, a minimum size above the maximum, and a count below 2.
 */
export function checkRepetitionDetection(given: RepetitionDetection | null): RepetitionDetection | null {
  if (given === null) return null;
  const { maxPatternSize, minPatternSize, minCount } = given;
  const fail = (expected: string): never => {
    throw new ArgumentError(
      `Expected \`repetition_detection\` to have ${expected}, got max_pattern_size ${maxPatternSize}, min_pattern_size ${minPatternSize}, min_count ${minCount}`,
    );
  };
  if (maxPatternSize < 0 || minPatternSize < 0 || minCount < 0) fail("no negative number");
  if (minPatternSize > maxPatternSize) fail("min_pattern_size at most max_pattern_size");
  if (maxPatternSize === 0) return null;
  return minCount < 2 ? fail("a min_count of at least 2") : given;
}

/**
 * Whether the last tokens are one pattern, repeated at least `minCount` times.
 *
 * @param ids - The output so far.
 */
export function isRepeating(ids: readonly number[], { maxPatternSize, minPatternSize, minCount }: RepetitionDetection): boolean {
  for (let size = Math.max(minPatternSize, 1); size <= maxPatternSize && size * minCount <= ids.length; size++) {
    // A repeated pattern: every token equals the token one pattern length before it.
    let at = ids.length - 1;
    const first = ids.length - size * (minCount - 1);
    while (at >= first && ids[at] === ids[at - size]) at--;
    if (at < first) return true;
  }
  return false;
}
