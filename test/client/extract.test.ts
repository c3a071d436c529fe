import { mkdir, mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { packTar, type TarSource } from "modern-tar/fs";
import { packTar as packEntries, type TarHeader } from "modern-tar";
import { beforeEach, describe, expect, it, onTestFinished } from "vitest";
import { extractTar } from "../../src/library/client/extract.ts";

let directory: string;
beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), "whetstone-extract-"));
  onTestFinished(() => rm(directory, { recursive: true, force: true }));
});

const file = (target: string, content = "x"): TarSource => ({ type: "content", target, content });

/** Packs an archive with invalid entries. */
async function* archive(...headers: (Partial<TarHeader> & { name: string })[]): AsyncGenerator<Uint8Array> {
  const entries = headers.map((header) => ({
    header: { size: header.type === "file" || header.type === undefined ? 1 : 0, ...header },
    body: "x",
  }));
  yield await packEntries(entries.map(({ header, body }) => (header.size === 0 ? { header } : { header, body })));
}

async function collect(stream: AsyncIterable<unknown>): Promise<Uint8Array[]> {
  const pieces: Uint8Array[] = [];
  for await (const piece of stream) pieces.push(piece as Uint8Array);
  return pieces;
}

describe("extractTar", () => {
  it("writes files and directories, and leaves no temporary files", async () => {
    const target = join(directory, "deep", "out");
    await extractTar(packTar([file("a.json", "{}"), file("nested/b.bin", "bytes"), file("empty", "")]), target);
    expect(await readFile(join(target, "a.json"), "utf8")).toBe("{}");
    expect(await readFile(join(target, "nested", "b.bin"), "utf8")).toBe("bytes");
    expect((await readdir(target)).toSorted()).toEqual(["a.json", "empty", "nested"]);
    expect(await readdir(join(directory, "deep"))).toEqual(["out"]);
  });

  it("extracts into an empty directory, and rejects a directory that contains files", async () => {
    const target = join(directory, "out");
    await mkdir(target);
    await extractTar(packTar([file("a")]), target);
    await expect(extractTar(packTar([file("b")]), target)).rejects.toMatchObject({ code: "E_ARGUMENT", param: "directory" });
    expect(await readdir(target)).toEqual(["a"]);
  });

  it("rejects a file as the target directory, and leaves it unchanged", async () => {
    const target = join(directory, "file");
    await writeFile(target, "mine");
    for (const path of [target, join(target, "below")])
      await expect(extractTar(packTar([file("a")]), path)).rejects.toMatchObject({ code: "E_ARGUMENT", param: "directory" });
    expect(await readFile(target, "utf8")).toBe("mine");
    expect(await readdir(directory)).toEqual(["file"]);
  });

  it.each([
    ["a path that climbs out", { name: "../outside" }],
    ["a path that climbs out on its way", { name: "nested/../../outside" }],
    ["an absolute path", { name: "/whetstone-outside" }],
    ["backslashes", { name: "..\\outside" }],
    ["a symbolic link", { name: "link", type: "symlink" as const, linkname: "../outside" }],
    ["a hard link", { name: "link", type: "link" as const, linkname: "/etc/hosts" }],
    ["a device", { name: "device", type: "character-device" as const }],
  ])("rejects an archive with %s, and writes nothing", async (_, header) => {
    const target = join(directory, "inside", "out");
    await expect(extractTar(archive({ name: "good" }, header), target)).rejects.toMatchObject({ code: "E_DATA" });
    expect(await readdir(join(directory, "inside"))).toEqual([]);
    expect(await readdir(directory)).toEqual(["inside"]);
  });

  it("does not write through a symbolic link from an earlier entry", async () => {
    const outside = join(directory, "outside");
    await mkdir(outside);
    const entries = archive({ name: "nested", type: "symlink", linkname: outside }, { name: "nested/file" });
    await expect(extractTar(entries, join(directory, "out"))).rejects.toMatchObject({ code: "E_DATA" });
    expect(await readdir(outside)).toEqual([]);
  });

  it("writes nothing of a truncated or invalid archive, and rethrows the error of the source", async () => {
    const target = join(directory, "out");
    const whole = Buffer.concat(await collect(packTar([file("a", "y".repeat(5000))])));
    const cut = async function* () {
      yield whole.subarray(0, 2000);
    };
    await expect(extractTar(cut(), target)).rejects.toMatchObject({ code: "E_DATA" });
    const text = async function* () {
      yield Buffer.from("not an archive, but long enough to look like one. ".repeat(40));
    };
    await expect(extractTar(text(), target)).rejects.toMatchObject({ code: "E_DATA" });
    const failing = async function* () {
      yield whole.subarray(0, 600);
      throw Object.assign(new DOMException("stop", "AbortError"));
    };
    await expect(extractTar(failing(), target)).rejects.toMatchObject({ name: "AbortError" });
    await writeFile(join(directory, "witness"), "");
    expect(await readdir(directory)).toEqual(["witness"]);
  });
});
