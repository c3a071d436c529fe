/** Errors of graders. */
import { WhetstoneError, type WhetstoneErrorOptions } from "../base/errors.ts";
import type { GraderErrors } from "../base/schema/index.ts";

/** Flag of {@link GraderErrors} that stands for a failure. */
export type GraderErrorFlag = {
  [Key in keyof GraderErrors]: GraderErrors[Key] extends boolean ? Key : never;
}[keyof GraderErrors];

/**
 * A grader could not score a sample. `runGrader` reports the flag and the message in its answer, with the reward 0; the reward of
 * `graderReward` throws the error, unless the sample is the cause, so the scored rollout fails and is recorded as data.
 */
export class GraderError extends WhetstoneError {
  readonly code = "E_GRADER";
  /** Flag of the failure in `metadata.errors`. */
  readonly flag: GraderErrorFlag;

  /**
   * Creates the error of a failed grader.
   *
   * @param flag - Flag of the failure.
   * @param message - Expected value, actual value and remedy.
   * @param options - Cause and retryability.
   * @example
   * ```ts
   * import { GraderError } from "whetstone/graders";
   *
   * throw new GraderError("model_grader_parse_error", "Expected a score, got a text");
   * ```
   */
  constructor(flag: GraderErrorFlag, message: string, options: WhetstoneErrorOptions = {}) {
    super(message, options);
    this.flag = flag;
  }
}

/** Failures that the sample causes: it lacks a part that a template names. They score 0. */
const SAMPLE_FAILURES: readonly GraderErrorFlag[] = ["sample_parse_error"];

/** Returns the first error that the sample does not cause; null if the sample has a reward. */
export function firstFailure(errors: readonly GraderError[]): GraderError | null {
  return errors.find(({ flag }) => !SAMPLE_FAILURES.includes(flag)) ?? null;
}
