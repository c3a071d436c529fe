import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test as property } from "@fast-check/vitest";
import fc from "fast-check";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { JsonLog } from "../../src/library/dataset/append.ts";

let directory: string;
let path: string;
beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), "whetstone-append-"));
  path = join(directory, "log.jsonl");
});
afterEach(() => rm(directory, { recursive: true, force: true }));

const lines = async (): Promise<unknown[]> =>
  (await readFile(path, "utf8"))
    .split("\n")
    .filter((line) => line !== "")
    .map((line) => JSON.parse(line) as unknown);

describe("a growing JSON Lines file", () => {
  it("keeps the order of appends that are not awaited", async () => {
    const log = await JsonLog.open(path);
    await Promise.all(Array.from({ length: 50 }, (_, index) => log.append({ index })));
    await log.sync();
    await log.close();
    expect(await lines()).toEqual(Array.from({ length: 50 }, (_, index) => ({ index })));
  });

  it("appends to an existing file", async () => {
    for (const value of [1, 2, 3]) {
      const log = await JsonLog.open(path);
      await log.append(value);
      await log.close();
    }
    expect(await lines()).toEqual([1, 2, 3]);
  });

  property.prop([fc.nat({ max: 200_000 })], { numRuns: 30 })(
    "removes a torn last line of any length and keeps all other lines",
    async (length) => {
      await writeFile(path, `{"a":1}\n{"b":"${"x".repeat(length)}`);
      const log = await JsonLog.open(path);
      await log.append({ c: 3 });
      await log.close();
      expect(await lines()).toEqual([{ a: 1 }, { c: 3 }]);
    },
  );

  it("empties a file that contains only a torn line", async () => {
    await writeFile(path, '{"a":');
    await (await JsonLog.open(path)).close();
    expect(await readFile(path, "utf8")).toBe("");
  });

  it("rejects a value without a JSON form and stays usable", async () => {
    const log = await JsonLog.open(path);
    await expect(log.append(undefined)).rejects.toMatchObject({ code: "E_DATA" });
    await log.append(1);
    await log.close();
    expect(await lines()).toEqual([1]);
  });
});
