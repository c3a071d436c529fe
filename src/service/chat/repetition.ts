import { ArgumentError } from "../../errors.ts";

/** When an output counts as going round in circles. */
export interface RepetitionDetection {
  /** Tokens in a repeated pattern, at most. */
  readonly maxPatternSize: number;
  /** At least. */
  readonly minPatternSize: number;
  /** Times it stands at the end in a row. */
  readonly minCount: number;
}

/**
 * Checks what a request wants detected.
 *
 * @returns Null when it is off.
 * @throws ArgumentError `E_ARGUMENT` for sizes below 0 or at odds, and for a count below 2.
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
 * Whether the last tokens are one pattern, repeated often enough.
 *
 * @param ids - The output so far.
 */
export function isRepeating(ids: readonly number[], { maxPatternSize, minPatternSize, minCount }: RepetitionDetection): boolean {
  for (let size = Math.max(minPatternSize, 1); size <= maxPatternSize && size * minCount <= ids.length; size++) {
    // A pattern repeated: every token equals the one a pattern's length before it.
    let at = ids.length - 1;
    const first = ids.length - size * (minCount - 1);
    while (at >= first && ids[at] === ids[at - size]) at--;
    if (at < first) return true;
  }
  return false;
}
