import { readFile } from "node:fs/promises";
import { expect, it } from "vitest";
import { packageFile } from "../../src/base/util/package-file.ts";

it("finds a file of the package by its path from the root", async () => {
  expect(packageFile("src/lab/page/report/main.tsx").href).toBe(new URL("../../src/lab/page/report/main.tsx", import.meta.url).href);
  expect(JSON.parse(await readFile(packageFile("package.json"), "utf8"))).toMatchObject({ name: "whetstone" });
});
