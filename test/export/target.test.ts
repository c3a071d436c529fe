import { mkdir, readdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { writeTarget } from "../../src/export/target.ts";
import { scratch } from "./support.ts";

test("the target stays if the output cannot be renamed to it", async () => {
  const directory = await scratch();
  const target = join(directory, "model");
  await mkdir(target);
  await writeFile(join(target, "weights"), "old");
  await expect(writeTarget(target, { force: true }, () => Promise.resolve())).rejects.toMatchObject({ code: "ENOENT" });
  expect(await readFile(join(target, "weights"), "utf8")).toBe("old");
  expect(await readdir(directory)).toEqual(["model"]);
});
