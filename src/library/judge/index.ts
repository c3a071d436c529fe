/** Judges: rewards that a language model gives, by comparing rollouts, by criteria, or by a reference answer. */
export { JudgeEndpoint, judgeEndpoint } from "./endpoint.ts";
export type { JudgeEndpointOptions, JudgeUsage } from "./endpoint.ts";
export { JudgeError, JudgeLimitError } from "./errors.ts";
export type { JudgeModel, JudgePrices } from "./model.ts";
export type { JudgeOptions, JudgeOutput, JudgeRequestFields } from "./options.ts";
export { DEFAULT_RUBRIC } from "./prompts.ts";
export type { RubricCriterion } from "./prompts.ts";
export { referenceJudge } from "./reference.ts";
export type { ReferenceJudgeOptions } from "./reference.ts";
export { relativeJudge } from "./relative.ts";
export type { RelativeJudgeOptions } from "./relative.ts";
export { rubricJudge } from "./rubric.ts";
export type { RubricJudgeOptions } from "./rubric.ts";
export { validateJudge } from "./validate.ts";
export type { JudgeCase, JudgeFinding, JudgeFindingCode, JudgeValidation, ScoreChange, ValidateJudgeOptions } from "./validate.ts";
