import { mkdir, mkdtemp, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, relative } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { expandPaths } from "../../src/library/dataset/paths.ts";

let root = "";
const FILES = [
  "a.jsonl",
  "b.jsonl.gz",
  ".hidden.jsonl",
  "c[1].jsonl",
  "star*.jsonl",
  "runs/one/t/1.jsonl",
  "runs/one/t/2.jsonl",
  "runs/two/t/1.jsonl",
  "runs/two/deep/er/1.jsonl",
  "runs/.cache/t/1.jsonl",
];
beforeAll(async () => {
  root = await mkdtemp(join(tmpdir(), "whetstone-paths-"));
  for (const file of FILES) {
    await mkdir(join(root, file, ".."), { recursive: true });
    await writeFile(join(root, file), "");
  }
  await mkdir(join(root, "directory.jsonl"));
  await symlink(join(root, "a.jsonl"), join(root, "link.jsonl"));
  // A loop that `**` must not follow.
  await symlink(root, join(root, "runs/one/loop"));
});
afterAll(() => rm(root, { recursive: true }));

describe("expandPaths", () => {
  it.each<[string | readonly string[], readonly string[]]>([
    ["a.jsonl", ["a.jsonl"]],
    ["*.jsonl", ["a.jsonl", "c[1].jsonl", "link.jsonl", "star*.jsonl"]],
    [".*.jsonl", [".hidden.jsonl"]],
    ["?.jsonl", ["a.jsonl"]],
    ["*.jsonl.gz", ["b.jsonl.gz"]],
    ["?.jsonl{,.gz}", ["a.jsonl", "b.jsonl.gz"]],
    ["c[1].jsonl", ["c[1].jsonl"]],
    ["star*.jsonl", ["star*.jsonl"]],
    ["runs/*/t/*.jsonl", ["runs/one/t/1.jsonl", "runs/one/t/2.jsonl", "runs/two/t/1.jsonl"]],
    ["runs/{one,two}/t/1.jsonl", ["runs/one/t/1.jsonl", "runs/two/t/1.jsonl"]],
    ["runs/{one/t/2,two/{t,deep/er}/1}.jsonl", ["runs/one/t/2.jsonl", "runs/two/deep/er/1.jsonl", "runs/two/t/1.jsonl"]],
    ["runs/**/1.jsonl", ["runs/one/t/1.jsonl", "runs/two/deep/er/1.jsonl", "runs/two/t/1.jsonl"]],
    ["runs/two/**", ["runs/two/deep/er/1.jsonl", "runs/two/t/1.jsonl"]],
    [
      ["runs/two/t/1.jsonl", "a.jsonl", "runs/two/t/*"],
      ["runs/two/t/1.jsonl", "a.jsonl"],
    ],
  ])("%j", async (patterns, expected) => {
    const given = typeof patterns === "string" ? `${root}/${patterns}` : patterns.map((each) => `${root}/${each}`);
    expect((await expandPaths(given)).map((path) => relative(root, path))).toEqual(expected);
  });

  it("resolves paths relative to the working directory", async () => {
    expect(await expandPaths("./test/data*/paths.test.ts")).toEqual(["test/dataset/paths.test.ts"]);
    expect(await expandPaths("package.json")).toEqual(["package.json"]);
  });

  it.each([["none.jsonl"], ["*.txt"], ["directory.jsonl"], ["nowhere/**"], ["a.jsonl/*"]])(
    "rejects %s, which matches no file",
    async (pattern) => {
      await expect(expandPaths([`${root}/a.jsonl`, `${root}/${pattern}`])).rejects.toMatchObject({
        code: "E_DATA",
        message: expect.stringContaining(pattern) as string,
      });
    },
  );

  it("rejects an unclosed brace and an empty list", async () => {
    await expect(expandPaths("{a,b")).rejects.toMatchObject({ code: "E_DATA", message: expect.stringContaining("}") as string });
    await expect(expandPaths([])).rejects.toMatchObject({ code: "E_DATA" });
  });
});
