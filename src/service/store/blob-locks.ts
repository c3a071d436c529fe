/**
 * Locks of blobs by digest. Several processes of a Postgres database may store and remove equal contents at the same time: a transaction
 * that inserts a row for a blob and a removal lock the digest, so that no committed row lacks its blob.
 */
import { isBlobReferenced } from "./artifacts.ts";
import { isShared, lockName, transactLocking } from "./database.ts";
import type { Store } from "./tables.ts";

const lockNameOf = (sha256: string) => `blob ${sha256}`;

/** Keeps other processes from removing a blob until the end of the transaction. Other transactions may keep the blob at the same time. */
export async function keepBlob(transaction: Store, sha256: string): Promise<void> {
  await lockName(transaction, lockNameOf(sha256), { isShared: true });
}

/** Calls `remove` if no row references a blob, and no other process is about to commit such a row. */
export async function unlessReferenced(store: Store, sha256: string, remove: () => Promise<void>): Promise<void> {
  if (await isBlobReferenced(store, sha256)) return;
  if (!isShared(store)) return remove();
  await transactLocking(store, async (transaction) => {
    await lockName(transaction, lockNameOf(sha256), { isShared: false });
    // A transaction that kept the blob may have committed its row during the wait.
    if (!(await isBlobReferenced(transaction, sha256))) await remove();
  });
}
