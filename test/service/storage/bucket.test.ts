import { randomBytes } from "node:crypto";
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, onTestFinished, test } from "vitest";
import { digestBytes } from "../../../src/service/disk/digests.ts";
import { StorageError } from "../../../src/service/storage/errors.ts";
import { S3Bucket, type S3Settings } from "../../../src/service/storage/s3/bucket.ts";
import { parseS3Location } from "../../../src/service/storage/s3/location.ts";
import { pathExists } from "../../../src/base/util/file-system-error.ts";
import { startS3, whyNoS3 } from "../../support/s3-server.ts";
import { startProxy } from "../../support/tcp-proxy.ts";
import { temporaryDirectory } from "../support.ts";

const MIB = 1024 * 1024;
const PATH = "checkpoints/m/1/file.bin";

function bucketOf(url: string, settings: Partial<S3Settings> = {}): S3Bucket {
  const bucket = new S3Bucket(parseS3Location(url, process.env), { attempts: 4, backoffMs: 1, partBytes: 5 * MIB, ...settings });
  onTestFinished(() => bucket.close());
  return bucket;
}

async function fileOf(bytes: Uint8Array) {
  const source = join(await temporaryDirectory(), "file");
  await writeFile(source, bytes);
  return { source, digest: digestBytes(bytes), target: `${source}.copy` };
}

async function listed(bucket: S3Bucket, path?: string) {
  const found = [];
  for await (const file of bucket.list(path)) found.push(file);
  return found;
}

describe.skipIf(whyNoS3 !== null)(`an S3 bucket${whyNoS3 === null ? "" : ` (${whyNoS3})`}`, () => {
  test.each([
    ["an empty file", 0],
    ["a file of one request", 1000],
    ["a file of exactly one part", 5 * MIB],
    ["a file in parts", 11 * MIB + 3],
  ])("stores, lists, returns and removes %s", async (_, size) => {
    const bucket = bucketOf((await startS3()).newUrl());
    const { source, digest, target } = await fileOf(randomBytes(size));
    await bucket.put(PATH, digest, source);
    expect(await listed(bucket, "checkpoints/m/1")).toEqual([{ path: PATH, digest, modifiedMs: expect.any(Number) }]);
    expect(await bucket.get(PATH, digest, target)).toBe(true);
    expect(digestBytes(await readFile(target))).toEqual(digest);
    await bucket.remove(PATH, digest);
    await bucket.remove(PATH, digest);
    expect(await listed(bucket)).toEqual([]);
    expect(await bucket.get(PATH, digest, `${target}.gone`)).toBe(false);
    expect(await pathExists(`${target}.gone`)).toBe(false);
  });

  test("keeps files with the same path and other bytes beside each other", async () => {
    const bucket = bucketOf((await startS3()).newUrl());
    const [first, second] = [await fileOf(randomBytes(10)), await fileOf(randomBytes(10))];
    await bucket.put(PATH, first.digest, first.source);
    await bucket.put(PATH, second.digest, second.source);
    expect((await listed(bucket, PATH)).map(({ digest }) => digest)).toEqual(expect.arrayContaining([first.digest, second.digest]));
    await bucket.get(PATH, first.digest, first.target);
    expect(digestBytes(await readFile(first.target))).toEqual(first.digest);
  });

  test("lists more files than one answer has, and only those below a path", async () => {
    const bucket = bucketOf((await startS3()).newUrl());
    const { source, digest } = await fileOf(Buffer.from("x"));
    const paths = Array.from({ length: 12 }, (_, index) => `jobs/${index}/groups.jsonl`);
    for (const path of paths) await bucket.put(path, digest, source);
    const found = [];
    for await (const { path } of bucket.list("", undefined, 5)) found.push(path);
    expect(found.sort()).toEqual(paths.sort());
    expect((await listed(bucket, "jobs/1")).map(({ path }) => path)).toEqual(["jobs/1/groups.jsonl"]);
  });

  test("rejects a file that differs from its digest, in one request and in parts", async () => {
    const bucket = bucketOf((await startS3()).newUrl());
    for (const size of [10, 6 * MIB]) {
      const { source, digest } = await fileOf(randomBytes(size));
      await writeFile(source, randomBytes(size));
      await expect(bucket.put(PATH, digest, source)).rejects.toMatchObject({ code: "E_DATA_CORRUPTED" });
    }
    expect(await listed(bucket)).toEqual([]);
  });

  test("reports an object with other bytes, and leaves no file", async () => {
    const bucket = bucketOf((await startS3()).newUrl());
    const { source, digest, target } = await fileOf(randomBytes(10));
    await bucket.put(PATH, digest, source);
    const other = { ...digest, size_bytes: 9 };
    await expect(bucket.get(PATH, other, target)).rejects.toMatchObject({ code: "E_DATA_CORRUPTED" });
    expect(await pathExists(target)).toBe(false);
  });

  test("repeats requests that are cut, and resumes downloads where they were cut", async () => {
    const s3 = await startS3();
    const proxy = await startProxy(s3.endpoint);
    const bucket = bucketOf(s3.newUrl(proxy.endpoint));
    const { source, digest, target } = await fileOf(randomBytes(12 * MIB));
    // Each connection is cut within the first part that it sends.
    Object.assign(proxy.faults, { cutAfterSent: MIB, cuts: 3 });
    await bucket.put(PATH, digest, source);
    expect(proxy.cutCount()).toBe(3);
    // More cuts than attempts: each attempt receives some bytes.
    proxy.cutAll();
    Object.assign(proxy.faults, { cutAfterSent: Infinity, cutAfterReceived: 2 * MIB, cuts: 5 });
    expect(await bucket.get(PATH, digest, target)).toBe(true);
    expect(proxy.cutCount()).toBe(8);
    expect(digestBytes(await readFile(target))).toEqual(digest);
  });

  test("gives up after a bounded number of attempts, naming the storage, and leaves nothing", async () => {
    const s3 = await startS3();
    const proxy = await startProxy(s3.endpoint);
    const url = s3.newUrl(proxy.endpoint);
    const bucket = bucketOf(url, { silenceMs: 100 });
    const { source, digest, target } = await fileOf(randomBytes(1000));
    await bucket.put(PATH, digest, source);
    for (const fault of ["isDown", "isSilent"] as const) {
      proxy.cutAll();
      proxy.faults[fault] = true;
      const calls = [bucket.put(PATH, digest, source), bucket.get(PATH, digest, target), listed(bucket), bucket.remove(PATH, digest)];
      for (const result of await Promise.allSettled(calls)) {
        expect(result).toMatchObject({ status: "rejected", reason: { code: "E_UNAVAILABLE", retryable: true, status: null } });
        expect((result as PromiseRejectedResult).reason.message).toContain(`s3://${s3.bucket} at ${proxy.endpoint}`);
      }
      proxy.faults[fault] = false;
    }
    expect(await pathExists(target)).toBe(false);
    // A server without an answer may have removed the file.
    await bucketOf(url).put(PATH, digest, source);
    expect(await listed(bucketOf(url))).toHaveLength(1);
  });

  test("waits for slow answers", async () => {
    const s3 = await startS3();
    const proxy = await startProxy(s3.endpoint);
    proxy.faults.delayMs = 50;
    await bucketOf(s3.newUrl(proxy.endpoint)).probe();
  });

  test("an abort ends an upload and a download without a repetition", async () => {
    const s3 = await startS3();
    const proxy = await startProxy(s3.endpoint);
    const bucket = bucketOf(s3.newUrl(proxy.endpoint));
    const { source, digest, target } = await fileOf(randomBytes(6 * MIB));
    proxy.faults.isSilent = true;
    const calls = [
      (signal: AbortSignal) => bucket.put(PATH, digest, source, signal),
      (signal: AbortSignal) => bucket.get(PATH, digest, target, signal),
    ];
    for (const call of calls) {
      const ending = new AbortController();
      const running = call(ending.signal);
      setTimeout(() => ending.abort(new Error("no longer needed")), 20);
      await expect(running).rejects.toThrow("no longer needed");
    }
    proxy.faults.isSilent = false;
    expect(await pathExists(target)).toBe(false);
  });

  test("reports the status and the reason of a rejected request", async () => {
    const s3 = await startS3();
    const missing = bucketOf(s3.newUrl().replace(s3.bucket, "no-such-bucket"));
    const error = await missing.probe().catch((thrown: unknown) => thrown as StorageError);
    expect(error).toBeInstanceOf(StorageError);
    expect(error).toMatchObject({ status: 404, message: expect.stringContaining("NoSuchBucket") });
  });
});
