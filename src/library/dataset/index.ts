/** Reading, processing, writing and uploading of trajectories: the entry point `whetstone/dataset`. */
export { bestOf, type BestOfOptions } from "./best-of.ts";
export { readChatJsonl, writeChatJsonl, type ChatExample } from "./chat.ts";
export { Dataset } from "./dataset.ts";
export type {
  BalanceOptions,
  DatasetRescoreOptions,
  DedupeOptions,
  RescoreArguments,
  ShuffleOptions,
  Split,
  SplitOptions,
} from "./dataset.ts";
export { readExamples, validateExamples, type InvalidLine, type ValidatedExamples } from "./examples.ts";
export type { ExampleFormat } from "./example-formats.ts";
export type { ReadOptions, WriteOptions, WrittenFile } from "./jsonl.ts";
export type { Identity } from "./keys.ts";
export type { DatasetMetadata } from "./metadata.ts";
export type { Patterns } from "./paths.ts";
export type { PreferencePair } from "../../base/trajectory/preference-pair.ts";
export { preferencePairs, readPreferences, writePreferences, type PreferencePairs, type PreferencePairsOptions } from "./preferences.ts";
export { readTrajectories, readTrajectoryGroups, writeTrajectories, writeTrajectoryGroups } from "./trajectories.ts";
export type {
  Reward,
  RewardFunction,
  RewardInput,
  RewardLike,
  RewardResult,
  RewardScore,
  ScoredTrajectory,
} from "../../base/trajectory/scoring.ts";
export { uploadPreferences, type UploadPreferencesOptions } from "./upload-preferences.ts";
export { uploadDataset, type ArtifactUploader, type StoredVersion, type UploadDatasetOptions, type UploadedDataset } from "./upload.ts";
export { writeDataset, type Examples, type WriteDatasetOptions, type WrittenDataset } from "./write-dataset.ts";
export { fromAtif, readAtif, toAtif, writeAtif } from "./formats/atif.ts";
export type { AtifAgent, AtifOptions, ReadAtifOptions, WriteAtifOptions } from "./formats/atif.ts";
export type { AtifTrajectory } from "./formats/atif-schema.ts";
export { readArtGroups, type ReadArtOptions } from "./formats/art.ts";
export { readVerifiersTraces } from "./formats/verifiers.ts";
