/** Deletion of expired files of the fine-tuning interface. */
import { logFailure } from "../common/logger.ts";
import { repeatEvery } from "../common/repeat.ts";
import { deleteArtifact, tryDelete, type DeletionContext } from "../history/deletion.ts";
import { expiredFiles } from "../store/files.ts";

/** Milliseconds between two cleanups. Requests do not see expired files in the meantime. */
const CLEANUP_MS = 60_000;

/**
 * Deletes expired files, now and every minute. A file that an unfinished job reads is deleted by a later cleanup.
 *
 * @returns a function that stops the cleanups and waits for a running one.
 */
export function startFileExpiry(context: DeletionContext): () => Promise<void> {
  const cleanUp = async (): Promise<void> => {
    for (const artifactId of await expiredFiles(context.store)) await tryDelete(() => deleteArtifact(context, artifactId));
  };
  return repeatEvery(() => cleanUp().catch(logFailure(context.logger, "Expired files could not be deleted")), CLEANUP_MS);
}
