/** Graders of OpenAI's fine-tuning API: scores of a model's output by comparison, text metrics, models and formulas, also as rewards. */
export { checkGrader, checkItem, type CheckOptions } from "./check.ts";
export { GraderError, type GraderErrorFlag } from "./errors.ts";
export { textSimilarity } from "./metrics/text-similarity.ts";
export type { GraderComplete } from "./model.ts";
export { graderReward, type GraderRewardOptions } from "./reward.ts";
export { runGrader, type GraderInput, type RunGraderOptions } from "./run.ts";
export type { GraderSample } from "./sample.ts";
export type {
  Grader,
  GraderErrors,
  GraderMessage,
  GraderRun,
  LabelModelGrader,
  MultiGrader,
  ScoreModelGrader,
  SingleGrader,
  StringCheckGrader,
  TextMetric,
  TextSimilarityGrader,
} from "../base/schema/index.ts";
