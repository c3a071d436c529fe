import { execFileSync } from "node:child_process";
import { link, mkdir, mkdtemp, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { parseFileJson, readRegularFile } from "../../src/base/util/regular-file.ts";

async function directory(): Promise<string> {
  const path = await mkdtemp(join(tmpdir(), "whetstone-files-"));
  onTestFinished(() => rm(path, { recursive: true, force: true }));
  return path;
}

const read = (path: string) => readRegularFile(path, { maxBytes: 100 });

test("reads a file, also through a link within its directory and as a hard link", async () => {
  const root = await directory();
  await writeFile(join(root, "plain"), "text");
  await symlink("plain", join(root, "linked"));
  await link(join(root, "plain"), join(root, "hard"));
  for (const name of ["plain", "linked", "hard"]) expect(await read(join(root, name))).toBe("text");
  // The directory itself may be reached by a link.
  await symlink(root, `${root}-link`);
  onTestFinished(() => rm(`${root}-link`));
  expect(await read(join(`${root}-link`, "plain"))).toBe("text");
});

test("in a hub cache, follows links from a snapshot only to the blobs of the same repository", async () => {
  const root = await directory();
  const [snapshot, blobs] = [join(root, "models--a--b", "snapshots", "c".repeat(40)), join(root, "models--a--b", "blobs")];
  for (const path of [snapshot, blobs]) await mkdir(path, { recursive: true });
  const digest = "0123456789abcdef".repeat(4);
  await writeFile(join(blobs, digest), "text");
  await writeFile(join(blobs, "notes"), "text");
  await writeFile(join(root, digest), "text");
  await symlink(join("..", "..", "blobs", digest), join(snapshot, "good"));
  await symlink(join("..", "..", "blobs", "notes"), join(snapshot, "no-digest"));
  await symlink(join("..", "..", "..", digest), join(snapshot, "outside"));
  expect(await read(join(snapshot, "good"))).toBe("text");
  for (const name of ["no-digest", "outside"])
    await expect(read(join(snapshot, name))).rejects.toMatchObject({ code: "E_DATA", message: expect.stringContaining("leads out of it") });
});

test.skipIf(process.platform === "win32")("rejects a directory, a FIFO and a device at once", async () => {
  const root = await directory();
  execFileSync("mkfifo", [join(root, "fifo")]);
  await mkdir(join(root, "folder"));
  for (const path of [join(root, "fifo"), join(root, "folder"), "/dev/zero"])
    await expect(read(path)).rejects.toMatchObject({ code: "E_DATA", message: expect.stringContaining("expected a regular file") });
});

test("rejects a file over the limit, and passes on the system error for a missing file", async () => {
  const root = await directory();
  await writeFile(join(root, "large"), "x".repeat(101));
  await expect(read(join(root, "large"))).rejects.toThrow("expected at most 100 bytes, got 101");
  await expect(read(join(root, "none"))).rejects.toMatchObject({ code: "ENOENT" });
});

test("the error for invalid JSON reports the position, and quotes none of the text", () => {
  expect(parseFileJson("file", '{"a":1}')).toEqual({ a: 1 });
  for (const text of ["secret: yes", '{"secret', "[1, secret]", ""]) {
    try {
      parseFileJson("file", text);
      expect.unreachable();
    } catch (error) {
      expect(error).toMatchObject({ code: "E_DATA", message: expect.stringMatching(/^file: expected JSON, it does not parse at /u) });
      expect(String((error as Error).stack)).not.toContain("secret");
    }
  }
});
