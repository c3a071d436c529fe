/** Upload of preference pairs as artifacts, for `model.trainPreferences`. */
import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import { DataError } from "../../base/errors.ts";
import { describeFile } from "./metadata.ts";
import { writePreferences, type PreferencePairs } from "./preferences.ts";
import { uploadHalves, type ArtifactUploader, type DescribedFile, type UploadDatasetOptions, type UploadedDataset } from "./upload.ts";

/** Options of {@link uploadPreferences}: pairs, name and destination. */
export interface UploadPreferencesOptions extends Pick<UploadDatasetOptions, "name" | "project" | "entity" | "signal"> {
  /** Training pairs, in the order of the file that the service trains on. */
  readonly train: PreferencePairs;
  /** Validation data, stored as a separate artifact as by `uploadDataset`. @default none */
  readonly validation?: PreferencePairs | undefined;
}

/**
 * Uploads preference pairs as an artifact version: `preferences.jsonl` in OpenAI's format, and `metadata.json`. Resumes and checks as
 * `uploadDataset`.
 *
 * @param service - Service or artifact store.
 * @param options - Pairs, name and destination.
 * @returns The addresses of both halves, for `model.trainPreferences`.
 * @throws DataError `E_DATA` without pairs, for an invalid pair, or if the stored files differ from the uploaded ones.
 * @throws HttpError `E_HTTP` for a failed request; ConnectionError `E_CONNECTION` without a complete response; the signal's reason.
 * @example
 * ```ts
 * import { readPreferences, uploadPreferences } from "whetstone/dataset";
 *
 * const data = await uploadPreferences(service, { name: "pairs", train: readPreferences("pairs.jsonl") });
 * const job = await model.trainPreferences(data, { beta: 0.1, validationSplit: 0.1 });
 * ```
 */
export function uploadPreferences(service: ArtifactUploader, options: UploadPreferencesOptions): Promise<UploadedDataset> {
  return uploadHalves(service, options, writeHalf);
}

/** Writes the pairs of one half, training or validation, to a directory. */
async function writeHalf(directory: string, pairs: PreferencePairs, signal: AbortSignal | undefined): Promise<DescribedFile> {
  await mkdir(directory, { recursive: true });
  const written = await writePreferences(join(directory, "preferences.jsonl"), pairs, { signal });
  if (written.count === 0) throw new DataError("Expected at least one preference pair, got none");
  return { path: written.path, metadata: describeFile(written, "num_pairs") };
}
