import { randomBytes } from "node:crypto";
import { mkdir, readFile, readdir, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { describe, expect, onTestFinished, test, vi } from "vitest";
import { openDataDirectory } from "../../../src/service/disk/data-directory.ts";
import { digestBytes, type FileDigest } from "../../../src/service/disk/digests.ts";
import { Verifier } from "../../../src/service/disk/verifier.ts";
import { CachedStorage } from "../../../src/service/storage/cached.ts";
import { openBucket } from "../../../src/service/storage/s3/bucket.ts";
import { sweepStorage } from "../../../src/service/stored-files/sweep.ts";
import { pathExists } from "../../../src/base/util/file-system-error.ts";
import { openStore } from "../../../src/service/store/sqlite.ts";
import { startS3, whyNoS3 } from "../../support/s3-server.ts";
import { temporaryDirectory } from "../support.ts";

const DAY_MS = 86_400_000;

/** A storage with an empty data directory; `again` opens the same bucket with another one. */
async function cached(maxBytes = 1e9, url?: string) {
  const place = url ?? (await startS3()).newUrl();
  const remote = openBucket(place);
  const directory = await openDataDirectory(await temporaryDirectory());
  const logged: string[] = [];
  const log = (message: string) => void logged.push(message);
  const logger = { info: log, warn: log, error: log };
  const storage = new CachedStorage({ remote, directory, verifier: new Verifier(logger), maxBytes, logger });
  onTestFinished(() => storage.close());
  await storage.open();
  const keep = async (path: string, bytes: Uint8Array): Promise<Record<string, FileDigest>> => {
    await mkdir(dirname(join(directory.root, path)), { recursive: true });
    await writeFile(join(directory.root, path), bytes);
    const digests = { [path]: digestBytes(bytes) };
    await storage.keep(digests);
    return digests;
  };
  const isHere = (path: string) => pathExists(join(directory.root, path));
  return { storage, remote, directory, logger, logged, keep, isHere, again: (bytes?: number) => cached(bytes, place) };
}

describe.skipIf(whyNoS3 !== null)(`copies of files in an S3 storage${whyNoS3 === null ? "" : ` (${whyNoS3})`}`, () => {
  test("readers at the same time share one download, and later ones use the copy", async () => {
    const { keep, again } = await cached();
    const bytes = randomBytes(1000);
    const digests = await keep("tokens/a.json", bytes);
    const other = await again();
    const get = vi.spyOn(other.remote, "get");
    const releases = await Promise.all(Array.from({ length: 5 }, () => other.storage.provide(digests, () => "a")));
    releases.push(await other.storage.provide(digests, () => "a"));
    for (const release of releases) release();
    expect(get).toHaveBeenCalledTimes(1);
    expect(await readFile(join(other.directory.root, "tokens/a.json"))).toEqual(bytes);
    expect(await readdir(other.directory.temporary)).toEqual([]);
  });

  test("removes the copies that were not used for the longest time, but none that is in use", async () => {
    const { storage, keep, isHere } = await cached(2500);
    const a = await keep("tokens/a.json", randomBytes(1000));
    const b = await keep("tokens/b.json", randomBytes(1000));
    const release = await storage.provide(a, () => "a");
    const c = await keep("tokens/c.json", randomBytes(1000));
    expect([await isHere("tokens/a.json"), await isHere("tokens/b.json"), await isHere("tokens/c.json")]).toEqual([true, false, true]);
    // All copies are in use: the limit is exceeded.
    const [releaseB, releaseC] = [await storage.provide(b, () => "b"), await storage.provide(c, () => "c")];
    expect(storage.cachedBytes).toBe(3000);
    for (const each of [release, releaseB, releaseC]) each();
    await keep("tokens/d.json", randomBytes(10));
    expect(storage.cachedBytes).toBeLessThanOrEqual(2500);
    expect(await isHere("tokens/a.json")).toBe(false);
  });

  test("counts the copies of an earlier process", async () => {
    const { directory, logger, remote, keep } = await cached();
    await keep("tokens/a.json", randomBytes(1000));
    await keep("tokens/b.json", randomBytes(1000));
    const next = new CachedStorage({ remote, directory, verifier: new Verifier(logger), maxBytes: 1500, logger });
    await next.open();
    expect(next.cachedBytes).toBe(1000);
  });

  test("replaces a damaged copy, and reports a file that the storage lacks", async () => {
    const { storage, directory, logged, remote, keep } = await cached();
    const bytes = randomBytes(1000);
    const digests = await keep("tokens/a.json", bytes);
    await writeFile(join(directory.root, "tokens/a.json"), randomBytes(1000));
    (await storage.provide(digests, () => "a"))();
    expect(await readFile(join(directory.root, "tokens/a.json"))).toEqual(bytes);
    expect(logged).toEqual([expect.stringContaining("fetched again")]);
    await remote.remove("tokens/a.json", digests["tokens/a.json"]!);
    await writeFile(join(directory.root, "tokens/a.json"), "damaged");
    await expect(storage.provide(digests, () => "The report")).rejects.toMatchObject({
      code: "E_DATA_CORRUPTED",
      message: expect.stringContaining("The report is damaged: the storage has no such file"),
    });
  });

  test("removes leftovers once they are old, but no referenced, young or foreign object", async () => {
    const { storage, remote, directory, logger, keep } = await cached();
    const store = await openStore(directory.database);
    onTestFinished(() => store.destroy());
    const report = await keep("tokens/known.json", randomBytes(10));
    await store
      .insertInto("jobs")
      .values({
        ...{
          id: "known",
          seq: 1,
          entity: "local",
          model_id: "m",
          type: "rl",
          status: "succeeded",
          config: "{}",
          committed_steps: 0,
          progress_dir: null,
        },
        ...{
          digests: JSON.stringify(report),
          attempts: 0,
          cancel_requested: 0,
          priority: 0,
          traceparent: null,
          is_paused: 0,
          error_message: null,
          step: 1,
        },
        ...{ created_at: "", lease_token: 0, lease_owner: null, lease_expires_ms: null, training_start: null, training_end: null },
      })
      .execute();
    const leftover = await keep("checkpoints/m/1/model.safetensors", randomBytes(10));
    await remote.writeMark("mark");
    const context = { store, directory, storage, logger };
    const limits = { maxQuarantineAgeMs: 30 * DAY_MS };
    const at = async (days: number, given = limits as { maxQuarantineAgeMs: number | null }) => {
      const { removed, missing } = await sweepStorage({ ...context, limits: given }, { nowMs: Date.now() + days * DAY_MS });
      return { removed: removed.map(({ path }) => path), missing: missing.map(({ path }) => path) };
    };
    expect(await at(29)).toEqual({ removed: [], missing: [] });
    expect(await at(400, { maxQuarantineAgeMs: null })).toEqual({ removed: [], missing: [] });
    // Less than a day is too young in any case.
    expect(await at(0.9, { maxQuarantineAgeMs: 0 })).toEqual({ removed: [], missing: [] });
    // A file that is stored again while the storage is compared stays.
    const list = vi.spyOn(remote, "list").mockImplementationOnce(async function* (...given) {
      yield* Object.getPrototypeOf(remote).list.call(remote, ...given);
      await storage.keep(leftover);
    });
    expect(await at(31)).toEqual({ removed: [], missing: [] });
    list.mockRestore();
    expect(await at(31)).toEqual({ removed: ["checkpoints/m/1/model.safetensors"], missing: [] });
    expect(await remote.readMark()).toBe("mark");
    await remote.remove("tokens/known.json", report["tokens/known.json"]!);
    expect(await at(31)).toEqual({ removed: [], missing: ["tokens/known.json"] });
  });
});
