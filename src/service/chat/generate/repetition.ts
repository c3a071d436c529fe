/** Detection of output that repeats itself, for `repetition_detection`. */
import { ArgumentError } from "../../../base/errors.ts";
import type { RepetitionDetection } from "../request/fields.ts";

/**
 * Validates the repetition detection of a request.
 *
 * @throws ArgumentError `E_ARGUMENT` for negative sizes, a minimum size above the maximum, and a count below 2.
 */
export function checkRepetitionDetection(detection: RepetitionDetection | null): void {
  if (detection === null) return;
  const { maxPatternSize, minPatternSize, minCount } = detection;
  const fail = (expected: string): void => {
    throw new ArgumentError(
      `Expected \`repetition_detection\` to have ${expected}, got max_pattern_size ${maxPatternSize}, min_pattern_size ${minPatternSize}, min_count ${minCount}`,
    );
  };
  if (maxPatternSize < 0 || minPatternSize < 0 || minCount < 0) fail("no negative number");
  if (minPatternSize > maxPatternSize) fail("min_pattern_size at most max_pattern_size");
  if (maxPatternSize > 0 && minCount < 2) fail("a min_count of at least 2");
}

/**
 * Whether the last tokens are one pattern, repeated at least `minCount` times. A maximum size of 0 detects nothing.
 *
 * @param ids - The output so far.
 */
export function isRepeating(ids: readonly number[], { maxPatternSize, minPatternSize, minCount }: RepetitionDetection): boolean {
  for (let size = Math.max(minPatternSize, 1); size <= maxPatternSize && size * minCount <= ids.length; size++) {
    // A repeated pattern: every token equals the token one pattern length before it.
    let index = ids.length - 1;
    const firstCompared = ids.length - size * (minCount - 1);
    while (index >= firstCompared && ids[index] === ids[index - size]) index--;
    if (index < firstCompared) return true;
  }
  return false;
}
