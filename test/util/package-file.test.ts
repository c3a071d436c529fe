import { readFile } from "node:fs/promises";
import { expect, it } from "vitest";
import { packageFile } from "../../src/util/package-file.ts";

it("finds a file of the package by its path from the root", async () => {
  expect(packageFile("src/report/page/main.ts").href).toBe(new URL("../../src/report/page/main.ts", import.meta.url).href);
  expect(JSON.parse(await readFile(packageFile("package.json"), "utf8"))).toMatchObject({ name: "whetstone" });
});
