/** Missing files and failures of the database in the background verification. */
import { expect, onTestFinished, test, vi } from "vitest";
import { openDataDirectory } from "../../../src/service/disk/data-directory.ts";
import { openStore } from "../../../src/service/store/sqlite.ts";
import { keepScrubbing } from "../../../src/service/stored-files/scrub.ts";
import { temporaryDirectory } from "../support.ts";

const FILES = 5;

test("confirms the missing files of a round together, and logs the ones that were not deleted meanwhile", async () => {
  const directory = await openDataDirectory(await temporaryDirectory());
  const store = await openStore(directory.database);
  onTestFinished(() => store.destroy());
  const artifact = { entity: "local", project: "demo", name: "data", version: 0, state: "open" as const, metadata: "{}", created_at: "" };
  await store
    .insertInto("artifacts")
    .values({ ...artifact, id: "a" })
    .execute();
  const sha256s = Array.from({ length: FILES }, (_, index) => String(index).repeat(64));
  const rows = sha256s.map((sha256, index) => ({ artifact_id: "a", path: `${index}`, size_bytes: 1, sha256 }));
  await store.insertInto("artifact_files").values(rows).execute();
  const lists = vi.spyOn(store, "selectFrom");
  const error = vi.fn<(message: string, fields?: object) => void>();
  const rechecked: string[] = [];
  const stop = keepScrubbing({
    store,
    directory,
    storage: { remote: null },
    files: {
      async recheck({ path }) {
        rechecked.push(path);
        if (rechecked.length === 1) await store.deleteFrom("artifact_files").where("sha256", "=", sha256s[0]!).execute();
        throw Object.assign(new Error("no such file"), { code: "ENOENT" });
      },
    },
    limits: { scrubBytesPerSecond: Infinity },
    logger: { info: () => {}, warn: () => {}, error },
  });
  onTestFinished(stop);
  await expect.poll(() => error.mock.calls.length).toBe(FILES - 1);
  expect(rechecked).toHaveLength(FILES);
  expect(error.mock.calls.map(([message, fields]) => [message, fields])).toEqual(
    sha256s
      .slice(1)
      .map((sha256) => [
        "A stored file is damaged",
        { path: expect.stringContaining(sha256), finding: "the file is missing", expected: { sha256, size_bytes: 1 } },
      ]),
  );
  // One list names the files of the round; one confirms the first missing file, and one the others.
  expect(lists.mock.calls.filter(([table]) => table === ("checkpoints" as never))).toHaveLength(3);
});

test("continues with the next round if the database fails in a round", async () => {
  const directory = await openDataDirectory(await temporaryDirectory());
  const store = await openStore(directory.database);
  onTestFinished(() => store.destroy());
  const warn = vi.fn<(message: string, fields?: object) => void>();
  const reads = vi.spyOn(store, "selectFrom").mockImplementationOnce(() => {
    throw new Error("the connection is lost");
  });
  const files = { recheck: () => Promise.resolve() };
  const logger = { info: () => {}, warn, error: () => {} };
  const stop = keepScrubbing({ store, directory, storage: { remote: null }, files, limits: { scrubBytesPerSecond: Infinity }, logger }, 10);
  onTestFinished(stop);
  await expect.poll(() => reads.mock.calls.length).toBeGreaterThan(1);
  expect(warn.mock.calls).toEqual([["Stored files could not be verified until the next round", { error: "the connection is lost" }]]);
});
