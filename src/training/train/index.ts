/** Training runs: rollouts, jobs and checkpoints as one process that can be followed, stopped and resumed. */
export type { BatchOptions, CurriculumOptions, FilterOptions, RefillOptions, WeightedEnvironment } from "./batch/options.ts";
export { evaluateCheckpoints } from "./evaluate-checkpoints.ts";
export type { EvaluateCheckpointsOptions } from "./evaluate-checkpoints.ts";
export type { Split } from "../../run/data.ts";
export type {
  GroupPassRate,
  LiveEventBody,
  Metrics,
  RecordedEvent,
  RecordedEventBody,
  RunEndReason,
  RunEvent,
  SettingChange,
} from "../../run/events.ts";
export type { RunResult } from "./loop.ts";
export type {
  DatasetRunOptions,
  EvaluationOptions,
  RunOptions,
  StepProgress,
  TrainPreferencesOptions,
  TrainRlOptions,
  TrainSftOptions,
} from "./options.ts";
export { trainPreferences } from "./preferences.ts";
export type { KeepCheckpoints, KeepTrajectories } from "./retention.ts";
export type { TrackedEvent, TrackedRun, Tracker, TrackerSession } from "./tracker.ts";
export { trainRl } from "./rl.ts";
export { trainSft } from "./sft.ts";
export { TrainingRun } from "./training-run.ts";
