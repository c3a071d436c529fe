import { createReadStream } from "node:fs";
import { join } from "node:path";
import { pipeline } from "node:stream/promises";
import { createGunzip } from "node:zlib";
import { unpackTar } from "modern-tar/fs";
import { beforeEach, expect, test } from "vitest";
import { openConnection } from "../../../src/service/store/connection.ts";
import { openStore } from "../../../src/service/store/sqlite.ts";
import { temporaryDirectory } from "../support.ts";
import { onSqlite } from "../../support/postgres.ts";

// The tests read and change the files of SQLite.
beforeEach(onSqlite);

test("the migration gives rows the entity of their model or artifact, and keeps stored responses to idempotency keys", async () => {
  const dataDir = await temporaryDirectory();
  const fixture = join(import.meta.dirname, "../fixtures/data-0007.tar.gz");
  await pipeline(createReadStream(fixture), createGunzip(), unpackTar(dataDir));
  const path = join(dataDir, "whetstone.db");
  const before = await openConnection(path, 1000);
  const now = "2026-11-27T00:00:00.000Z";
  before.exec(`
    UPDATE models SET entity = 'acme';
    UPDATE artifacts SET entity = 'search';
    INSERT INTO files SELECT 'file-1', id, 'train.jsonl', 'fine-tune', 1, '${now}', NULL FROM artifacts LIMIT 1;
    INSERT INTO jobs SELECT 'orphan', 1000, 'deleted-model', type, status, config, committed_steps, progress_dir, attempts, cancel_requested,
      error_message, step, created_at, training_start, training_end, digests, is_paused FROM jobs LIMIT 1;
    UPDATE sessions SET model = (SELECT entity || '/' || project || '/' || name || ':step1' FROM models LIMIT 1);
    INSERT INTO idempotency_keys VALUES ('/v1/preview/models', 'retry-1', 'digest', 200, '{}', '${now}');
  `);
  const [model] = before.prepare("SELECT id FROM models").all() as { id: string }[];
  before.close();
  const store = await openStore(path);
  try {
    const entities = async (table: "jobs" | "files" | "sessions") =>
      (await store.selectFrom(table).select(["id", "entity"]).orderBy("id").execute()).map(({ id, entity }) =>
        id === "orphan" ? id : entity,
      );
    const jobs = await entities("jobs");
    expect(new Set(jobs)).toEqual(new Set(["acme", "orphan"]));
    const orphan = await store.selectFrom("jobs").select("entity").where("id", "=", "orphan").executeTakeFirst();
    expect([orphan, await entities("files"), await entities("sessions")]).toEqual([{ entity: "local" }, ["search"], ["acme"]]);
    expect(await store.selectFrom("sessions").select("model_id").execute()).toEqual([{ model_id: model!.id }]);
    const kept = await store.selectFrom("idempotency_keys").selectAll().where("key", "=", "retry-1").execute();
    expect(kept).toEqual([
      { entity: "", route: "/v1/preview/models", key: "retry-1", digest: "digest", status: 200, body: "{}", created_at: now },
    ]);
  } finally {
    await store.destroy();
  }
});
