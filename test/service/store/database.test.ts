import { mkdir, readdir, readFile, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, onTestFinished, test, vi } from "vitest";
import { connect, type SqliteConnection } from "../../../src/service/store/connection.ts";
import { openStore } from "../../../src/service/store/database.ts";
import { MIGRATIONS } from "../../../src/service/store/migrations.ts";
import { temporaryDirectory } from "../support.ts";

async function raw(path: string): Promise<SqliteConnection> {
  const connection = await connect(path, 1000);
  onTestFinished(() => connection.close());
  return connection;
}

function tablesOf(connection: SqliteConnection): string[] {
  const rows = connection.prepare("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'kysely%'").all();
  return rows.map((row) => (row as { name: string }).name);
}

test("a migration that fails halfway leaves no table, and the next start repeats it", async () => {
  const path = join(await temporaryDirectory(), "whetstone.db");
  const names = Object.keys(MIGRATIONS);
  const last = names.at(-1) as string;
  const { up } = MIGRATIONS[last]!;
  vi.spyOn(MIGRATIONS[last]!, "up").mockImplementationOnce(async (db) => {
    await up(db);
    throw new Error("the power fails here");
  });
  await expect(openStore(path)).rejects.toMatchObject({ code: "E_INTERNAL", message: expect.stringContaining("the power fails here") });
  expect(tablesOf(await raw(path))).toEqual([]);
  const store = await openStore(path);
  expect(tablesOf(await raw(path))).toContain("models");
  await store.destroy();
});

test("a database of a newer version is refused by the name of its migration and not changed", async () => {
  const path = join(await temporaryDirectory(), "whetstone.db");
  await (await openStore(path)).destroy();
  const connection = await raw(path);
  connection.exec("INSERT INTO kysely_migration (name, timestamp) VALUES ('9999-future', '2099-01-01T00:00:00.000Z')");
  await expect(openStore(path)).rejects.toMatchObject({
    code: "E_CONFIG",
    param: "dataDir",
    message: expect.stringMatching(/newer version.*expected migrations up to '\d{4}-\w+', found '9999-future'/u),
  });
});

test("a file that is not a database, and a damaged one, are refused and not changed", async () => {
  const directory = await temporaryDirectory();
  const path = join(directory, "whetstone.db");
  await writeFile(path, "no database ".repeat(1000));
  await expect(openStore(path)).rejects.toMatchObject({ code: "E_DATA_CORRUPTED", message: expect.stringContaining("not a database") });
  expect(await readFile(path, "utf8")).toBe("no database ".repeat(1000));

  const damaged = join(directory, "damaged.db");
  await (await openStore(damaged)).destroy();
  const bytes = await readFile(damaged);
  bytes.fill(0xff, 4096 * 3);
  await writeFile(damaged, bytes);
  await expect(openStore(damaged)).rejects.toMatchObject({
    code: "E_DATA_CORRUPTED",
    message: expect.stringContaining("Nothing was changed"),
  });
  expect((await readFile(damaged)).equals(bytes)).toBe(true);
});

test("a closed store has all of its data in the one file", async () => {
  const directory = await temporaryDirectory();
  const path = join(directory, "whetstone.db");
  const store = await openStore(path);
  await store
    .insertInto("idempotency_keys")
    .values({ route: "/", key: "k", digest: "", status: 200, body: "{}", created_at: "2026-01-01T00:00:00.000Z" })
    .execute();
  await store.destroy();
  const copy = join(directory, "copy", "whetstone.db");
  await mkdir(join(directory, "copy"));
  await writeFile(copy, await readFile(path));
  const copied = await openStore(copy);
  expect(await copied.selectFrom("idempotency_keys").select("key").execute()).toEqual([{ key: "k" }]);
  await copied.destroy();
});

test("without the permission to create one, a missing, an empty and a fresh database are refused with the reason", async () => {
  const directory = await temporaryDirectory();
  const refused = (name: string) =>
    expect(openStore(join(directory, name), { whyNotNew: "because" })).rejects.toMatchObject({ code: "E_CONFIG", message: "because" });
  await refused("missing.db");
  await writeFile(join(directory, "missing.db-wal"), "a write-ahead log");
  await refused("missing.db");
  await writeFile(join(directory, "empty.db"), "");
  await refused("empty.db");
  (await connect(join(directory, "fresh.db"), 0)).exec("PRAGMA journal_mode = WAL; CREATE TABLE kysely_migration (name, timestamp)");
  await refused("fresh.db");
  expect((await readdir(directory)).filter((name) => !name.startsWith("fresh"))).toEqual(["empty.db", "missing.db-wal"]);
  expect((await stat(join(directory, "empty.db"))).size).toBe(0);
});
