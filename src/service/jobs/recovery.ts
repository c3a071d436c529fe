import { readdir } from "node:fs/promises";
import { join, relative } from "node:path";
import type { BlobStore } from "../artifacts/blob-store.ts";
import { OPTIMIZER_FILE } from "../checkpoints/retention.ts";
import type { DataDirectory } from "../data-directory.ts";
import { remove } from "../files.ts";
import type { ServiceLogger } from "../logger.ts";
import { LIVE_STATUSES } from "../store/jobs.ts";
import type { Store } from "../store/tables.ts";
import { cancelNow } from "./queue.ts";

/**
 * Puts a data directory in order before anything is served: jobs that were running wait again in their old place, and everything on
 * disk that no row speaks of is what a crash left half-made, so it goes.
 */
export async function recover({
  store,
  directory,
  blobs,
  logger,
}: {
  readonly store: Store;
  readonly directory: DataDirectory;
  readonly blobs: BlobStore;
  readonly logger: ServiceLogger;
}): Promise<void> {
  const requeued = await requeueJobs(store);
  const removed = [
    ...(await sweepJobs(store, directory)),
    ...(await sweepCheckpoints(store, directory)),
    ...(await removeEntries(directory.temporary, () => true)),
  ];
  const referenced = new Set((await store.selectFrom("artifact_files").select("sha256").distinct().execute()).map((row) => row.sha256));
  const removedBlobs = await blobs.sweep((sha256) => referenced.has(sha256));
  if (requeued + removed.length + removedBlobs > 0)
    logger.info("Recovered after an interruption", { requeued, removed: removed.length, removedBlobs });
}

function requeueJobs(store: Store): Promise<number> {
  return store.transaction().execute(async (transaction) => {
    const interrupted = await transaction.selectFrom("jobs").selectAll().where("status", "=", "running").orderBy("seq").execute();
    for (const job of interrupted) {
      if (job.cancel_requested === 1) await cancelNow(transaction, job);
      else await transaction.updateTable("jobs").set({ status: "queued" }).where("id", "=", job.id).execute();
    }
    return interrupted.length;
  });
}

async function removeEntries(path: string, isLeftOver: (name: string) => boolean): Promise<string[]> {
  const names = (await readdir(path).catch(() => [])).filter(isLeftOver);
  for (const name of names) await remove(join(path, name));
  return names;
}

async function sweepJobs(store: Store, directory: DataDirectory): Promise<string[]> {
  const live = await store.selectFrom("jobs").select(["id", "progress_dir"]).where("status", "in", LIVE_STATUSES).execute();
  const progress = new Map(live.map((job) => [job.id, job.progress_dir]));
  const removed = await removeEntries(directory.jobs, (id) => !progress.has(id));
  for (const [id, kept] of progress) {
    const path = join(directory.jobs, id);
    removed.push(
      ...(await removeEntries(
        path,
        (name) => name.includes(".tmp-") || (name.startsWith("progress-") && relative(directory.root, join(path, name)) !== kept),
      )),
    );
  }
  return removed;
}

async function sweepCheckpoints(store: Store, directory: DataDirectory): Promise<string[]> {
  const rows = await store.selectFrom("checkpoints").select(["state_dir", "optimizer_kind"]).where("state_dir", "is not", null).execute();
  const kept = new Map(rows.map((row) => [join(directory.root, row.state_dir ?? ""), row.optimizer_kind]));
  const models = new Set((await store.selectFrom("models").select("id").execute()).map((row) => row.id));
  const removed = await removeEntries(directory.checkpoints, (id) => !models.has(id));
  for (const id of models) {
    const path = join(directory.checkpoints, id);
    removed.push(...(await removeEntries(path, (name) => !kept.has(join(path, name)))));
  }
  for (const [path, kind] of kept) {
    if (kind === null) await remove(join(path, OPTIMIZER_FILE));
  }
  return removed;
}
