/** Judges: rewards that a language model gives, by comparing rollouts, by criteria, or by a reference answer. */
export { JudgeEndpoint, judgeEndpoint, type JudgeEndpointOptions, type JudgeUsage } from "./endpoint.ts";
export { JudgeError, JudgeLimitError } from "./errors.ts";
export type { JudgeModel, JudgePrices } from "./model.ts";
export type { JudgeOptions, JudgeOutput, JudgeRequestFields } from "./options.ts";
export { DEFAULT_RUBRIC, type RubricCriterion } from "./prompts.ts";
export { referenceJudge, type ReferenceJudgeOptions } from "./reference.ts";
export { relativeJudge, type RelativeJudgeOptions } from "./relative.ts";
export { rubricJudge, type RubricJudgeOptions } from "./rubric.ts";
export { validateJudge } from "./validate.ts";
export type { JudgeCase, JudgeFinding, JudgeFindingCode, JudgeValidation, ScoreChange, ValidateJudgeOptions } from "./validate.ts";
