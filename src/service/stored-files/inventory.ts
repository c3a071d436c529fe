import { readdir } from "node:fs/promises";
import { join, relative } from "node:path";
import { OPTIMIZER_FILE } from "../../engine/port.ts";
import type { DataDirectory } from "../data-directory.ts";
import { isTemporaryName } from "../files.ts";
import { recordedSnapshots } from "../hub/recorded-digests.ts";
import { artifactUrl, stepName } from "../names.ts";
import { LIVE_STATUSES } from "../store/jobs.ts";
import type { CheckpointRow, JobRow, ModelRow, Store } from "../store/tables.ts";
import { parseDigests, toStoredPath, type FileDigest } from "../digests.ts";

/** Folder of the data directory with cached base models. */
export const HUB = "hub";

/** File referenced by the database, or file of a fetched base model. */
export interface StoredFile {
  /** Path relative to the data directory, with `/` as the separator. */
  readonly path: string;
  /** Digest; null for a file written before digests were recorded. */
  readonly digest: FileDigest | null;
  /** Name of the object that the file belongs to. */
  readonly subject: string;
}

/** Lists all files that the database references and all files of fetched base models, by path. */
export async function storedFiles(store: Store, directory: DataDirectory): Promise<Map<string, StoredFile>> {
  const files = new Map<string, StoredFile>();
  const add = (file: StoredFile) => void files.set(file.path, file);
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
    const storedPath = toStoredPath(join(relative(directory.root, directory.blobs), sha256.slice(0, 2), sha256));
    add({ path: storedPath, digest: { sha256, size_bytes }, subject: `file '${path}' of artifact '${artifactUrl(artifact)}'` });
  }
  for (const { name, folder, commit, digests } of await recordedSnapshots(join(directory.root, HUB))) {
    for (const [file, digest] of Object.entries(digests))
      add({ path: `${HUB}/${folder}/snapshots/${commit}/${file}`, digest, subject: `base model '${name}'` });
  }
  return files;
}

/** Lists the files on disk below the directories that the database describes, except incomplete files. */
export async function filesOnDisk(directory: DataDirectory): Promise<string[]> {
  const places = [directory.checkpoints, directory.jobs, directory.tokens, directory.blobs];
  const found = await Promise.all(places.map((storedPath) => filesBelow(directory, storedPath)));
  return found.flat().filter((storedPath) => !storedPath.split("/").some(isTemporaryName));
}

/** Lists the files below a directory; empty if the directory does not exist. */
async function filesBelow(directory: DataDirectory, path: string): Promise<string[]> {
  const entries = await readdir(path, { recursive: true, withFileTypes: true }).catch(() => []);
  return entries
    .filter((entry) => !entry.isDirectory())
    .map((entry) => toStoredPath(relative(directory.root, join(entry.parentPath, entry.name))));
}

async function ofCheckpoint(directory: DataDirectory, row: CheckpointRow, model: ModelRow): Promise<StoredFile[]> {
  if (row.state_dir === null) return [];
  const files = await withDigests(directory, row, { storedPath: row.state_dir, subject: `checkpoint '${stepName(model, row.step)}'` });
  return row.optimizer_kind === null ? files.filter(({ path }) => !path.endsWith(`/${OPTIMIZER_FILE}`)) : files;
}

async function ofJob(directory: DataDirectory, row: JobRow): Promise<StoredFile[]> {
  const subject = `training job '${row.id}'`;
  const digests = parseDigests(row.digests);
  if (digests !== null) return Object.entries(digests).map(([path, digest]) => ({ path, digest, subject }));
  // For jobs created before digests were recorded: groups, progress, and the token report if one exists.
  const isLive = (LIVE_STATUSES as readonly string[]).includes(row.status);
  const groups = isLive && row.type === "rl" ? [`jobs/${row.id}/groups.jsonl`] : [];
  const progress = row.progress_dir === null ? [] : await withDigests(directory, row, { storedPath: row.progress_dir, subject });
  const reports = (await filesBelow(directory, directory.tokens)).filter((storedPath) => storedPath === `tokens/${row.id}.json`);
  return [...[...groups, ...reports].map((path) => ({ path, digest: null, subject })), ...progress];
}

/**
 * Returns the files of a directory with their recorded digests, or else the existing files without digests. A missing directory counts as a
 * missing file.
 */
async function withDigests(
  directory: DataDirectory,
  row: { readonly digests: string | null },
  { storedPath, subject }: { readonly storedPath: string; readonly subject: string },
): Promise<StoredFile[]> {
  const digests = parseDigests(row.digests);
  if (digests !== null) return Object.entries(digests).map(([path, digest]) => ({ path, digest, subject }));
  const found = await filesBelow(directory, join(directory.root, storedPath));
  return (found.length === 0 ? [toStoredPath(storedPath)] : found).map((path) => ({ path, digest: null, subject }));
}
