import { readdir } from "node:fs/promises";
import { join, relative } from "node:path";
import { OPTIMIZER_FILE } from "../checkpoints/retention.ts";
import type { DataDirectory } from "../data-directory.ts";
import { isTemporaryName } from "../files.ts";
import { recordedSnapshots } from "../hub/recorded-digests.ts";
import { artifactUrl, stepName } from "../names.ts";
import { LIVE_STATUSES } from "../store/jobs.ts";
import type { CheckpointRow, JobRow, ModelRow, Store } from "../store/tables.ts";
import { parseDigests, toPlace, type FileDigest } from "./digests.ts";

/** Folder of the data directory with cached base models. */
export const HUB = "hub";

/** File referenced by the database, or file of a fetched base model. */
export interface StoredFile {
  /** Path relative to the data directory, with `/` as the separator. */
  readonly place: string;
  /** Digest; null for a file written before digests were recorded. */
  readonly digest: FileDigest | null;
  /** Name of the object that the file belongs to. */
  readonly subject: string;
}

/** Lists all files that the database references and all files of fetched base models, by path. */
export async function storedFiles(store: Store, directory: DataDirectory): Promise<Map<string, StoredFile>> {
  const files = new Map<string, StoredFile>();
  const add = (file: StoredFile) => void files.set(file.place, file);
  const models = new Map((await store.selectFrom("models").selectAll().execute()).map((model) => [model.id, model]));
  for (const row of await store.selectFrom("checkpoints").selectAll().execute()) {
    for (const file of await ofCheckpoint(directory, row, models.get(row.model_id) as ModelRow)) add(file);
  }
  for (const row of await store.selectFrom("jobs").selectAll().execute()) for (const file of await ofJob(directory, row)) add(file);
  const blobs = await store
    .selectFrom("artifact_files")
    .innerJoin("artifacts", "artifacts.id", "artifact_files.artifact_id")
    .selectAll()
    .execute();
  for (const { sha256, size_bytes, path, ...artifact } of blobs) {
    const place = toPlace(join(relative(directory.root, directory.blobs), sha256.slice(0, 2), sha256));
    add({ place, digest: { sha256, size_bytes }, subject: `file '${path}' of artifact '${artifactUrl(artifact)}'` });
  }
  for (const { name, folder, commit, digests } of await recordedSnapshots(join(directory.root, HUB))) {
    for (const [file, digest] of Object.entries(digests))
      add({ place: `${HUB}/${folder}/snapshots/${commit}/${file}`, digest, subject: `base model '${name}'` });
  }
  return files;
}

/** Lists the files on disk below the directories that the database describes, except incomplete files. */
export async function filesOnDisk(directory: DataDirectory): Promise<string[]> {
  const places = [directory.checkpoints, directory.jobs, directory.tokens, directory.blobs];
  const found = await Promise.all(places.map((place) => filesBelow(directory, place)));
  return found.flat().filter((place) => !place.split("/").some(isTemporaryName));
}

/** Lists the files below a directory; empty if the directory does not exist. */
async function filesBelow(directory: DataDirectory, path: string): Promise<string[]> {
  const entries = await readdir(path, { recursive: true, withFileTypes: true }).catch(() => []);
  return entries
    .filter((entry) => !entry.isDirectory())
    .map((entry) => toPlace(relative(directory.root, join(entry.parentPath, entry.name))));
}

async function ofCheckpoint(directory: DataDirectory, row: CheckpointRow, model: ModelRow): Promise<StoredFile[]> {
  if (row.state_dir === null) return [];
  const files = await withDigests(directory, row, { place: row.state_dir, subject: `checkpoint '${stepName(model, row.step)}'` });
  return row.optimizer_kind === null ? files.filter(({ place }) => !place.endsWith(`/${OPTIMIZER_FILE}`)) : files;
}

async function ofJob(directory: DataDirectory, row: JobRow): Promise<StoredFile[]> {
  const subject = `training job '${row.id}'`;
  const digests = parseDigests(row.digests);
  if (digests !== null) return Object.entries(digests).map(([place, digest]) => ({ place, digest, subject }));
  // For jobs created before digests were recorded: groups, progress, and the token report if one exists.
  const isLive = (LIVE_STATUSES as readonly string[]).includes(row.status);
  const groups = isLive && row.type === "rl" ? [`jobs/${row.id}/groups.jsonl`] : [];
  const progress = row.progress_dir === null ? [] : await withDigests(directory, row, { place: row.progress_dir, subject });
  const reports = (await filesBelow(directory, directory.tokens)).filter((place) => place === `tokens/${row.id}.json`);
  return [...[...groups, ...reports].map((place) => ({ place, digest: null, subject })), ...progress];
}

/**
 * Returns the files of a directory with their recorded digests, or else the existing files without digests. A missing directory counts as a
 * missing file.
 */
async function withDigests(
  directory: DataDirectory,
  row: { readonly digests: string | null },
  { place, subject }: { readonly place: string; readonly subject: string },
): Promise<StoredFile[]> {
  const digests = parseDigests(row.digests);
  if (digests !== null) return Object.entries(digests).map(([path, digest]) => ({ place: path, digest, subject }));
  const found = await filesBelow(directory, join(directory.root, place));
  return (found.length === 0 ? [toPlace(place)] : found).map((path) => ({ place: path, digest: null, subject }));
}
