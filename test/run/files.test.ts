/** Run directories on disk: discovery, symbolic links, and files that grow, are replaced or are damaged. */
import { appendFile, mkdir, mkdtemp, realpath, rename, rm, symlink, truncate, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, it, onTestFinished } from "vitest";
import { z } from "zod";
import { findRunsBelow } from "../../src/run/find-runs.ts";
import { LineTail } from "../../src/run/line-tail.ts";

async function temporaryDirectory(): Promise<string> {
  const path = await realpath(await mkdtemp(join(tmpdir(), "whetstone-dashboard-")));
  onTestFinished(() => rm(path, { recursive: true, force: true }));
  return path;
}

async function makeRun(path: string): Promise<void> {
  await mkdir(path, { recursive: true });
  await writeFile(join(path, "events.jsonl"), "");
}

const namesIn = async (...roots: string[]) => (await findRunsBelow(roots)).map(({ name }) => name).sort();

describe("findRunsBelow", () => {
  it("finds runs up to four levels below a root, and a root that is a run", async () => {
    const root = await temporaryDirectory();
    for (const name of ["a", "b/rl", "b/sft", "1/2/3/4", "1/2/3/x/5"]) await makeRun(join(root, name));
    expect(await namesIn(root)).toEqual(["1/2/3/4", "a", "b/rl", "b/sft"]);
    expect(await namesIn(join(root, "a"), join(root, "missing"))).toEqual(["a"]);
  });

  it("returns a run once, with the same id for every root that contains it", async () => {
    const root = await temporaryDirectory();
    await makeRun(join(root, "group", "run"));
    const [outer] = await findRunsBelow([root, join(root, "group")]);
    const [inner, ...more] = await findRunsBelow([join(root, "group"), root]);
    expect(more).toEqual([]);
    expect(inner?.id).toBe(outer?.id);
    expect(inner?.id).toMatch(/^[a-f0-9]{16}$/);
  });

  it("follows no symbolic link below a root, and skips hidden directories, node_modules and data directories", async () => {
    const [root, elsewhere] = [await temporaryDirectory(), await temporaryDirectory()];
    await makeRun(join(elsewhere, "run"));
    await symlink(join(elsewhere, "run"), join(root, "linked"));
    for (const name of [".hidden", "node_modules/x", "data/checkpoints"]) await makeRun(join(root, name));
    await writeFile(join(root, "data", "whetstone.db"), "");
    expect(await namesIn(root)).toEqual([]);
  });
});

describe("LineTail", () => {
  const schema = z.object({ n: z.int() });

  async function tailed(content: string) {
    const root = await temporaryDirectory();
    const path = join(root, "a.jsonl");
    await writeFile(path, content);
    const tail = new LineTail(path, { root, schema });
    const numbers = () => tail.rows.map(({ n }) => n);
    return { root, path, tail, numbers };
  }

  it("reads only complete lines, and each of them once", async () => {
    const { path, tail, numbers } = await tailed('{"n":1}\n{"n":2}\n{"n"');
    expect([await tail.read(), numbers(), tail.end]).toEqual([true, [1, 2], 16]);
    expect([await tail.read(), numbers()]).toEqual([false, [1, 2]]);
    await appendFile(path, ":3}\n");
    expect([await tail.read(), numbers()]).toEqual([true, [1, 2, 3]]);
  });

  it("notices every change of the file without reading it", async () => {
    const { path, tail } = await tailed('{"n":1}\n{"n');
    expect(await tail.hasChanged()).toBe(true);
    await tail.read();
    expect(await tail.hasChanged()).toBe(false);
    for (const change of [() => appendFile(path, ":2}"), () => truncate(path, 8), () => rm(path), () => writeFile(path, "")]) {
      await change();
      expect(await tail.hasChanged()).toBe(true);
      await tail.read();
      expect(await tail.hasChanged()).toBe(false);
    }
  });

  it("leaves a complete value without a line end for the next read", async () => {
    const { path, tail, numbers } = await tailed('{"n":1}');
    expect([await tail.read(), numbers(), tail.end]).toEqual([false, [], 0]);
    await appendFile(path, "\n");
    expect([await tail.read(), numbers()]).toEqual([true, [1]]);
  });

  it("continues after a torn line was removed", async () => {
    const { path, tail, numbers } = await tailed('{"n":1}\n{"n');
    await tail.read();
    await truncate(path, 8);
    await appendFile(path, '{"n":2}\n');
    await tail.read();
    expect(numbers()).toEqual([1, 2]);
  });

  it("reads a file again that was replaced, truncated or deleted", async () => {
    const { path, tail, numbers } = await tailed('{"n":1}\n{"n":2}\n');
    await tail.read();
    await writeFile(`${path}.new`, '{"n":5}\n{"n":6}\n{"n":7}\n');
    await rename(`${path}.new`, path);
    expect([await tail.read(), numbers()]).toEqual([true, [5, 6, 7]]);
    await writeFile(path, '{"n":8}\n');
    expect([await tail.read(), numbers()]).toEqual([true, [8]]);
    await rm(path);
    expect([await tail.read(), numbers()]).toEqual([true, []]);
    expect(await tail.read()).toBe(false);
  });

  it("names file and line of a damaged line at every read, and keeps the rows before it", async () => {
    const { tail, numbers } = await tailed('{"n":1}\n{"n":"x"}\n{"n":3}\n');
    for (let attempt = 0; attempt < 2; attempt++) {
      await expect(tail.read()).rejects.toThrow(/a\.jsonl:2: at `n`/);
      expect(numbers()).toEqual([1]);
    }
  });

  it("rejects a symbolic link that leads out of the root", async () => {
    const [root, elsewhere] = [await temporaryDirectory(), await temporaryDirectory()];
    await writeFile(join(elsewhere, "secret"), '{"n":1}\n');
    await symlink(join(elsewhere, "secret"), join(root, "a.jsonl"));
    const tail = new LineTail(join(root, "a.jsonl"), { root, schema });
    await expect(tail.read()).rejects.toThrow(/a\.jsonl: expected a file below .*symbolic link/);
    expect(tail.rows).toEqual([]);
  });
});
