import { mkdir, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { digestBytes, PIECE_BYTES, type FileDigest } from "../../../src/service/disk/digests.ts";
import { closing } from "../../../src/service/disk/files.ts";
import { Verifier } from "../../../src/service/disk/verifier.ts";
import { openRegularFile } from "../../../src/base/util/regular-file.ts";
import { temporaryDirectory } from "../support.ts";

const storedPath = "state.bin";

/** Writes a file into an empty directory. Returns its verifier, its place, and a function that reads it through the verifier. */
async function storedFile(bytes: Uint8Array) {
  const place = { root: await temporaryDirectory(), storedPath };
  await writeFile(join(place.root, storedPath), bytes);
  const logged: string[] = [];
  const verifier = new Verifier({ error: (message) => void logged.push(message) });
  /** Returns the pieces that a reader receives. */
  const read = async (expected: FileDigest) =>
    closing(await openRegularFile(join(place.root, storedPath)), async (file) => {
      const pieces: Buffer[] = [];
      for await (const piece of verifier.read(file, place, expected, "The file")) pieces.push(piece);
      return pieces;
    });
  return { place, verifier, logged, read };
}

describe("a verifier that reads a file", () => {
  test("yields all bytes of an intact file", async () => {
    const bytes = Buffer.alloc(PIECE_BYTES + 5, 1);
    const { read, logged } = await storedFile(bytes);
    expect(Buffer.concat(await read(digestBytes(bytes))).equals(bytes)).toBe(true);
    expect(logged).toEqual([]);
  });

  test("rejects a file that is longer than expected, and does not record the digest of the bytes before the excess as the file's", async () => {
    const bytes = Buffer.alloc(3 * PIECE_BYTES, 1);
    const { place, verifier, read, logged } = await storedFile(bytes);
    await expect(read(digestBytes(bytes.subarray(0, 10)))).rejects.toMatchObject({ code: "E_DATA_CORRUPTED" });
    expect(logged).toEqual(["A stored file is damaged"]);
    await expect(verifier.isIntact(place, digestBytes(bytes))).resolves.toBe(true);
  });
});

test("a verifier logs a directory in the place of a file, and passes on that a file is missing", async () => {
  const { place, verifier, logged } = await storedFile(Buffer.from("text"));
  const expected = digestBytes(Buffer.from("text"));
  await rm(join(place.root, storedPath));
  await expect(verifier.open(place, expected, "The file")).rejects.toMatchObject({ code: "ENOENT" });
  expect(logged).toEqual([]);
  await mkdir(join(place.root, storedPath));
  await expect(verifier.open(place, expected, "The file")).rejects.toMatchObject({ code: "E_DATA_CORRUPTED" });
  expect(logged).toEqual(["A stored file is damaged"]);
});
