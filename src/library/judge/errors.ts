/** Errors of judges. */
import { WhetstoneError } from "../../base/errors.ts";

/**
 * A judge gave no valid answer: both of its answers were invalid, or its model ended a request with a timeout. The scored rollouts fail and
 * are recorded as data; no reward is invented. The message names the problem of each answer.
 */
export class JudgeError extends WhetstoneError {
  readonly code = "E_JUDGE";
}

/** A judge endpoint has used up one of its limits, `maxCostUsd` or `maxTotalTokens`. No further request is sent. */
export class JudgeLimitError extends WhetstoneError {
  readonly code = "E_JUDGE_LIMIT";
}
