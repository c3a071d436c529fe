/** Environments: a task's scenarios, rollout and rewards, as input of training, evaluation, validation and rescoring. */
export { contentHash } from "./content-hash.ts";
export { defineEnvironment } from "./environment.ts";
export type { AnyEnvironment, Environment, EnvironmentContext, EnvironmentDefinition, ScenarioSource } from "./environment.ts";
export { evaluate, type EvaluateOptions, type Evaluation } from "./evaluate.ts";
export { processRollout, type ProcessRolloutOptions } from "./process-rollout.ts";
export { rescore, type RescoreOptions } from "./rescore.ts";
export { reward, weighted } from "./reward.ts";
export { environmentRollout, type EnvironmentRolloutOptions } from "./rollout.ts";
export { scenarioIdOf, trainScenarios, type TrainScenariosOptions } from "./scenarios.ts";
export { similarity } from "./similarity.ts";
export { jsonSchemaReward, numericReward, regexReward, similarityReward } from "./text-rewards.ts";
export type { NumericRewardOptions, TextRewardOptions } from "./text-rewards.ts";
export type {
  GroupReward,
  GroupRewardFunction,
  GroupRewardInput,
  GroupRewardLike,
  GroupRewardResult,
  GroupScore,
  GroupScores,
} from "../../base/trajectory/group-scoring.ts";
export { RewardError } from "../../base/trajectory/scoring.ts";
export type {
  Reward,
  RewardFunction,
  RewardInput,
  RewardLike,
  RewardResult,
  RewardScore,
  ScoredTrajectory,
} from "../../base/trajectory/scoring.ts";
export { validate } from "./validate.ts";
export type { GoldScore, ValidateOptions, Validation, ValidationCode, ValidationFinding } from "./validate.ts";
export type {
  OpenReceiverOptions,
  ReceivedRollout,
  ReceiveOptions,
  RolloutBroker,
  RolloutMessage,
  RolloutReceiver,
  RolloutSender,
} from "./worker/broker.ts";
export { runWorker } from "./worker/worker.ts";
export type { WorkerEvent, WorkerOptions, WorkerResult } from "./worker/options.ts";
