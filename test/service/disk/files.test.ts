import { mkdir, readdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { removeWhole } from "../../../src/service/disk/files.ts";
import { temporaryDirectory } from "../support.ts";

test("removes a directory atomically and completely", async () => {
  const root = await temporaryDirectory();
  const [path, temporary] = [join(root, "state"), join(root, "tmp")];
  for (const made of [path, temporary]) await mkdir(made);
  for (let index = 0; index < 200; index++) await writeFile(join(path, String(index)), "");
  let isOver = false;
  const removed = removeWhole(path, temporary).finally(() => (isOver = true));
  while (!isOver) expect((await readdir(path).catch(() => null))?.length ?? 200).toBe(200);
  await removed;
  expect(await readdir(root)).toEqual(["tmp"]);
  expect(await readdir(temporary)).toEqual([]);
  // A missing path is accepted.
  await removeWhole(path, temporary);
});
