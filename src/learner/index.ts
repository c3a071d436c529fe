/** Learner: conversion of trajectories to training rows, losses and metrics. Pure functions, independent of the engine. */

export { groupAdvantages, normalizeBatch, type AdvantageOptions, type BatchEntry, type NormalizedEntry } from "./advantages.ts";
export { policyDiagnostics, policyDiagnosticsSteps, type DiagnosticOptions } from "./diagnostics.ts";
export { trainingWarnings, WARNING_HISTORY, type TrainingWarning, type TrainingWarningCode } from "./warnings.ts";
export { resolveLoss } from "./loss.ts";
export { mergeTurns, readTurn, type MergedTurns, type TokenTurn } from "./merge.ts";
export {
  linearLoss,
  linearRows,
  policyObjective,
  policyObjectiveSteps,
  policyRows,
  type PolicyGradient,
  type PolicyObjective,
  type PolicyRow,
} from "./policy-objective.ts";
export { checkRlConfig, type KlReference, type ResolvedRlConfig } from "./rl-config.ts";
export { needsRendering } from "./read-trajectory.ts";
export { groupTurnAdvantages, turnReturns } from "./turn-rewards.ts";
export { buildRlBatch, rlBatchSteps, type RlBatch, type RlBatchOptions, type RowSource } from "./rl.ts";
export { MAX_STEPS, shuffledIndices, type TrainingPlan, type TrainingStep } from "./plan.ts";
export {
  pairSums,
  preferenceGradient,
  preferenceLoss,
  preferenceRows,
  type PairValues,
  type PreferenceBatch,
  type PreferenceGradient,
  type PreferenceMetrics,
  type PreferenceObjective,
  type SequencePair,
} from "./preference.ts";
export { checkPreferenceConfig, planPreferences, type PreferenceReference } from "./preference-config.ts";
export { preferenceSequences, type PreferenceSequences } from "./preference-example.ts";
export { buildSftBatch, planSft, type SftBatch } from "./sft.ts";
export { checkSftConfig } from "./sft-config.ts";
export { learningRate, type RateSchedule } from "./schedule.ts";
export { readSftExample, sftSequences, type SftExample, type SftSequences } from "./sft-example.ts";
export type { ImportanceLevel, SampledSequence, SequenceLimits, TokenSequence, TurnSpan } from "./types.ts";
export type { AdamParams, LossSpec, PolicyLoss, Row } from "../base/training-rows.ts";
