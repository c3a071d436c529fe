/** Trajectories on disk and on their way to a service: the entry `whetstone/dataset`. */
export type { ReadOptions, WriteOptions, WrittenFile } from "./jsonl.ts";
export { readTrajectories, writeChatJsonl, writeTrajectories } from "./trajectories.ts";
export type { ChatExample } from "./trajectories.ts";
export { uploadDataset } from "./upload.ts";
export type { ArtifactUploader, UploadDatasetOptions } from "./upload.ts";
