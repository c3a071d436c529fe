import { cp, mkdir, readdir, readFile, rm, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { expect, onTestFinished, test, vi } from "vitest";
import { digestBytes } from "../../../src/service/disk/digests.ts";
import { openConnection, type SqliteConnection } from "../../../src/service/store/connection.ts";
import { synchronize, unsynchronized } from "../../../src/service/store/database.ts";
import { openStore } from "../../../src/service/store/sqlite.ts";
import { MIGRATIONS } from "../../../src/service/store/migrations.ts";
import { temporaryDirectory } from "../support.ts";

async function raw(path: string): Promise<SqliteConnection> {
  const connection = await openConnection(path, 1000);
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
    message: expect.stringMatching(/newer version.*expected migrations up to '\d{4}-[\w-]+', found '9999-future'/u),
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
  const intact = Buffer.from(bytes);
  bytes.fill(0xff, 4096 * 3);
  await writeFile(damaged, bytes);
  await expect(openStore(damaged)).rejects.toMatchObject({
    code: "E_DATA_CORRUPTED",
    message: expect.stringContaining("Nothing was changed"),
  });
  expect((await readFile(damaged)).equals(bytes)).toBe(true);

  // Many damaged pages of one table.
  await writeFile(damaged, intact);
  const store = await openStore(damaged);
  for (let i = 0; i < 200; i++)
    await store
      .insertInto("idempotency_keys")
      .values({ ...key(String(i)), body: "x".repeat(2000) })
      .execute();
  await store.destroy();
  const pages = await readFile(damaged);
  for (let page = intact.length + 4096; page < pages.length; page += 4096) pages.fill(0, page, page + 8);
  await writeFile(damaged, pages);
  const error: unknown = await openStore(damaged).catch((reason: unknown) => reason);
  expect(error).toMatchObject({ code: "E_DATA_CORRUPTED", message: expect.stringContaining("Nothing was changed") });
  expect((error as Error).message.split("\n").length).toBeLessThan(4);
});

test("a closed store has all of its data in the one file", async () => {
  const directory = await temporaryDirectory();
  const path = join(directory, "whetstone.db");
  const store = await openStore(path);
  await store
    .insertInto("idempotency_keys")
    .values({ entity: "", route: "/", key: "k", digest: "", status: 200, body: "{}", created_at: "2026-01-01T00:00:00.000Z" })
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
  (await openConnection(join(directory, "fresh.db"), 0)).exec("PRAGMA journal_mode = WAL; CREATE TABLE kysely_migration (name, timestamp)");
  await refused("fresh.db");
  expect((await readdir(directory)).filter((name) => !name.startsWith("fresh"))).toEqual(["empty.db", "missing.db-wal"]);
  expect((await stat(join(directory, "empty.db"))).size).toBe(0);
});

/** Copies the files of an open database, as a killed process leaves them. Returns the copy's path. */
async function killed(path: string): Promise<string> {
  const copy = join(await temporaryDirectory(), "whetstone.db");
  for (const suffix of ["", "-wal", "-mark"]) await cp(path + suffix, copy + suffix).catch(() => {});
  return copy;
}

const key = (name: string) => ({
  entity: "",
  route: "r",
  key: name,
  digest: "d",
  status: 200,
  body: "{}",
  created_at: "2026-01-01T00:00:00.000Z",
});
function collectGarbage(): void {
  setFlagsFromString("--expose-gc");
  (runInNewContext("gc") as () => void)();
}
const numberOf = async (path: string) => Number((await readFile(`${path}-mark`, "utf8")).trim());

test.each([
  { name: "missing", damage: (wal: string) => rm(wal), found: "is missing" },
  { name: "empty", damage: (wal: string) => writeFile(wal, ""), found: "is missing" },
  {
    name: "damaged",
    async damage(wal: string) {
      const bytes = await readFile(wal);
      bytes[Math.floor(bytes.length / 2)]! ^= 1;
      await writeFile(wal, bytes);
    },
    found: "is damaged",
  },
])("rejects a database with a write-ahead log that is $name, changes nothing, and opens it without the mark", async ({ damage, found }) => {
  const path = join(await temporaryDirectory(), "whetstone.db");
  const store = await openStore(path);
  onTestFinished(() => store.destroy());
  for (const name of ["a", "b", "c"]) await store.insertInto("idempotency_keys").values(key(name)).execute();
  await store.transaction().execute(async (transaction) => {
    await transaction.insertInto("idempotency_keys").values(key("d")).execute();
    await transaction.insertInto("idempotency_keys").values(key("e")).execute();
  });
  const intact = await killed(path);
  const opened = await openStore(intact);
  expect(await opened.selectFrom("idempotency_keys").select("key").execute()).toHaveLength(5);
  await opened.destroy();

  const lost = await killed(path);
  await damage(`${lost}-wal`);
  // SQLite may create an empty log.
  const hashOf = async (suffix: string) => digestBytes(await readFile(lost + suffix).catch(() => Buffer.alloc(0)));
  const filesOf = () => Promise.all(["", "-wal", "-mark"].map(hashOf));
  const before = await filesOf();
  const rejected = { code: "E_DATA_CORRUPTED", param: "dataDir" };
  const message = expect.stringMatching(
    new RegExp(
      `expected transaction 4 of .*, found [0-3];.* of [1-4] transactions are missing.*${found}.*Put .* back.*restore.*delete '.*-mark'`,
      "u",
    ),
  );
  await expect(openStore(lost)).rejects.toMatchObject({ ...rejected, message });
  // A connection that is open until its objects are collected would copy the log into the database now.
  collectGarbage();
  expect(await filesOf()).toEqual(before);
  await rm(`${lost}-mark`);
  const rest = await openStore(lost);
  expect((await rest.selectFrom("idempotency_keys").select("key").execute()).length).toBeLessThan(5);
  await rest.destroy();
});

test("rejects a missing database with a mark that names transactions", async () => {
  const path = join(await temporaryDirectory(), "whetstone.db");
  await writeFile(`${path}-mark`, "0000000000000007\n");
  await expect(openStore(path)).rejects.toMatchObject({ code: "E_DATA_CORRUPTED", message: expect.stringContaining("found 0") });
  // A failure of the system may leave a file without its contents.
  await writeFile(`${path}-mark`, "\0".repeat(17));
  await (await openStore(path)).destroy();
});

test("marks committed and synchronized changes only, and removes the mark at the end", async () => {
  const path = join(await temporaryDirectory(), "whetstone.db");
  const store = await openStore(path);
  await store.insertInto("idempotency_keys").values(key("a")).execute();
  expect(await numberOf(path)).toBe(1);
  // Nothing is written for a statement without an effect, or a transaction that is rolled back.
  await store.deleteFrom("idempotency_keys").where("key", "=", "none").execute();
  await store.transaction().execute((transaction) => transaction.selectFrom("models").selectAll().execute());
  const failing = store.transaction().execute(async (transaction) => {
    await transaction.insertInto("idempotency_keys").values(key("b")).execute();
    throw new Error("stop");
  });
  await expect(failing).rejects.toThrow("stop");
  await expect(store.insertInto("idempotency_keys").values(key("a")).execute()).rejects.toThrow(/UNIQUE/u);
  await store.deleteFrom("idempotency_keys").where("key", "=", "a").returning("key").execute();
  expect(await numberOf(path)).toBe(2);

  // An unsynchronized change is copied into the database, where the loss of the log does not affect it.
  await unsynchronized(store, (execute) => execute("INSERT INTO idempotency_keys VALUES ('', 'r', 'c', 'd', 200, '{}', ?)", [""]));
  await synchronize(store);
  expect(await numberOf(path)).toBe(2);
  const copy = await killed(path);
  await rm(`${copy}-wal`);
  const copied = await openStore(copy);
  expect(await copied.selectFrom("idempotency_keys").select("key").execute()).toEqual([{ key: "c" }]);
  await copied.destroy();
  await store.destroy();
  expect(await readdir(join(path, ".."))).not.toContain("whetstone.db-mark");
  const again = await openStore(path);
  await again.insertInto("idempotency_keys").values(key("d")).execute();
  expect(await numberOf(path)).toBe(3);
  await again.destroy();
});
