/** Equal contents that two processes of one service store and delete at the same time. */
import { createHash } from "node:crypto";
import { describe, expect, onTestFinished, test } from "vitest";
import { deferred } from "../../../src/base/util/deferred.ts";
import { BlobStore, type WrittenBlob } from "../../../src/service/artifacts/blob-store.ts";
import { BlobRemovedError, removeBlob, requireBlob } from "../../../src/service/artifacts/remove-blob.ts";
import { stderrLogger } from "../../../src/service/common/logger.ts";
import { openDataDirectory } from "../../../src/service/disk/data-directory.ts";
import { Verifier } from "../../../src/service/disk/verifier.ts";
import { FolderStorage } from "../../../src/service/storage/folder.ts";
import { transact } from "../../../src/service/store/database.ts";
import { openPostgres } from "../../../src/service/store/postgres.ts";
import type { Store } from "../../../src/service/store/tables.ts";
import { missingPostgres, postgresUrl, queryPostgres, temporarySchema } from "../../support/postgres.ts";
import { ARTIFACTS, startTestService, temporaryDirectory } from "../support.ts";

const CONTENTS = "the same contents";
const SHA256 = createHash("sha256").update(CONTENTS).digest("hex");

async function* contents(): AsyncGenerator<Uint8Array> {
  yield Buffer.from(CONTENTS);
}

/** Parts of two processes that share a database and a data directory. */
async function twoProcesses() {
  const directory = await openDataDirectory(await temporaryDirectory());
  const database = temporarySchema();
  const start = async () => {
    const store = await openPostgres(database);
    onTestFinished(() => store.destroy());
    return { store, blobs: new BlobStore(directory, new FolderStorage(directory, new Verifier(stderrLogger))), logger: stderrLogger };
  };
  return [await start(), await start()] as const;
}

/** Inserts an artifact with the contents. */
async function insert(transaction: Store, { sha256, sizeBytes }: WrittenBlob): Promise<void> {
  const artifact = { entity: "local", project: "demo", name: "data", version: 0, state: "open" as const, metadata: "{}", created_at: "" };
  await transaction
    .insertInto("artifacts")
    .values({ ...artifact, id: "a" })
    .execute();
  await transaction.insertInto("artifact_files").values({ artifact_id: "a", path: "x", size_bytes: sizeBytes, sha256 }).execute();
}

describe.skipIf(missingPostgres !== null)(`two processes on Postgres${missingPostgres === null ? "" : `: ${missingPostgres}`}`, () => {
  test("a removal waits for a transaction that inserts a row for the same contents, and keeps them", async () => {
    const [one, other] = await twoProcesses();
    const blob = await one.blobs.write(contents(), { maxBytes: 100 });
    const [isLocked, release] = [deferred<void>(), deferred<void>()];
    const inserting = transact(one.store, async (transaction) => {
      await requireBlob(transaction, one.blobs, blob);
      isLocked.resolve();
      await release.promise;
      await insert(transaction, blob);
    });
    await isLocked.promise;
    let isRemoved = false;
    const removing = removeBlob(other, SHA256).then(() => (isRemoved = true));
    const waiting = "select 1 from pg_locks where locktype = 'advisory' and not granted";
    await expect.poll(async () => (await queryPostgres(postgresUrl(), waiting)).length).toBeGreaterThan(0);
    expect(isRemoved).toBe(false);
    release.resolve();
    await Promise.all([inserting, removing]);
    expect(await one.blobs.has(blob)).toBe(true);
  });

  test("contents that another process removed after they were written are not referenced", async () => {
    const [one, other] = await twoProcesses();
    const blob = await one.blobs.write(contents(), { maxBytes: 100 });
    await removeBlob(other, SHA256);
    const inserting = transact(one.store, async (transaction) => {
      await requireBlob(transaction, one.blobs, blob);
      await insert(transaction, blob);
    });
    await expect(inserting).rejects.toBeInstanceOf(BlobRemovedError);
    expect(await one.store.selectFrom("artifacts").select("id").execute()).toEqual([]);
  });

  test("every acknowledged upload can be read while equal contents are deleted through the other process", async () => {
    const [dataDir, database] = [await temporaryDirectory(), temporarySchema()];
    const start = () => startTestService({ dataDir, database });
    const [one, other] = [await start(), await start()];
    const create = async (service: typeof one) => (await service.ok("POST", ARTIFACTS, { project: "demo", name: "data" })).id as string;
    const put = (service: typeof one, id: string) => service.call("PUT", `${ARTIFACTS}/${id}/files/x`, CONTENTS);
    let accepted = 0;
    let old = await create(other);
    await put(other, old);
    for (let round = 0; round < 25; round++) {
      const id = await create(one);
      const [answer] = await Promise.all([put(one, id), other.ok("DELETE", `${ARTIFACTS}/${old}`)]);
      expect([200, 503]).toContain(answer.status);
      if (answer.status === 503) expect((await put(one, id)).status).toBe(200);
      else accepted++;
      expect(await other.ok("GET", `${ARTIFACTS}/${id}/files/x`)).toBe(CONTENTS);
      old = id;
    }
    expect(accepted).toBeGreaterThan(0);
  });
});
