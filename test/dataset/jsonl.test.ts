import { execFileSync } from "node:child_process";
import { mkdtemp, open, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { gunzipSync } from "node:zlib";
import { createHash } from "node:crypto";
import { fc, test } from "@fast-check/vitest";
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from "vitest";
import { readJsonLines, writeJsonLines, type JsonLine, type ReadOptions } from "../../src/library/dataset/jsonl.ts";

let directory = "";
let files = 0;
beforeAll(async () => (directory = await mkdtemp(join(tmpdir(), "whetstone-jsonl-"))));
afterAll(() => rm(directory, { recursive: true }));

const fresh = (name = "a.jsonl") => join(directory, `${files++}-${name}`);

async function fileOf(content: string | Buffer): Promise<string> {
  const path = fresh();
  await writeFile(path, content);
  return path;
}

/** Reads the lines of a file until its end or first error. */
async function read(path: string, options?: ReadOptions): Promise<{ lines: JsonLine[]; error: unknown }> {
  const lines: JsonLine[] = [];
  try {
    for await (const line of readJsonLines(path, options)) lines.push(line);
    return { lines, error: null };
  } catch (error) {
    return { lines, error };
  }
}

const values = ({ lines }: { lines: JsonLine[] }) => lines.map(({ value }) => value);

describe("readJsonLines", () => {
  it("skips a byte order mark, blank lines and CRLF, and counts every line", async () => {
    const path = await fileOf('\u{feff}{"a":1}\r\n\n  \n[2]\r\n"three"');
    expect(await read(path)).toEqual({
      lines: [
        { line: 1, value: { a: 1 }, isWhole: true, end: 12 },
        { line: 4, value: [2], isWhole: true, end: 21 },
        { line: 5, value: "three", isWhole: false, end: 28 },
      ],
      error: null,
    });
  });

  it("resumes after any line of an earlier reading, with the same line numbers", async () => {
    const path = await fileOf('{"a":"é"}\n\n[2]\r\n3\n4');
    const { lines } = await read(path);
    for (const [index, from] of lines.entries()) {
      const rest: JsonLine[] = [];
      for await (const line of readJsonLines(path, { from })) rest.push(line);
      expect(rest).toEqual(lines.slice(index + 1));
    }
  });

  it('returns null, false, 0 and "" as values', async () => {
    expect(values(await read(await fileOf('null\nfalse\n0\n""\n1\n')))).toEqual([null, false, 0, "", 1]);
  });

  it.each([
    ["in the middle", '1\n2\n{"a":\n4\n', 2, 3],
    ["two values on a line", "1\n2,3\n4\n", 1, 2],
    ["a bracket that would fit the wrapping", "1\n2],[3\n4\n", 1, 2],
    ["at a complete last line", '1\n{"a"\n', 1, 2],
    ["many", "x\ny\nz\n", 0, 1],
  ])("invalid JSON %s: returns the values before it, then names the line", async (_, content, before, line) => {
    const result = await read(await fileOf(content), { tornLine: "skip" });
    expect(result.lines).toHaveLength(before);
    expect(result.error).toMatchObject({ code: "E_DATA", message: expect.stringContaining(`.jsonl:${line}:`) as string });
  });

  it("rejects a torn last line by default and names the option that skips it", async () => {
    const path = await fileOf('1\n{"a": "b');
    expect((await read(path)).error).toMatchObject({ code: "E_DATA", message: expect.stringMatching(/:2:.*tornLine: "skip"/) as string });
    expect(await read(path, { tornLine: "skip" })).toMatchObject({ lines: [{ value: 1 }], error: null });
  });

  it("treats a last line that ends inside a character as torn", async () => {
    const path = await fileOf(Buffer.concat([Buffer.from('1\n"'), Buffer.from("ü").subarray(0, 1)]));
    expect((await read(path)).error).toMatchObject({ code: "E_DATA" });
    expect(values(await read(path, { tornLine: "skip" }))).toEqual([1]);
  });

  it("rejects text that is not UTF-8, and a missing file", async () => {
    expect((await read(await fileOf(Buffer.from([0x22, 0xff, 0xfe, 0x22, 0x0a, 0x31, 0x0a])))).error).toMatchObject({ code: "E_DATA" });
    expect((await read(fresh())).error).toMatchObject({ code: "E_DATA", message: expect.stringContaining("ENOENT") as string });
  });

  it("rejects with the signal's own reason", async () => {
    const path = await fileOf("1\n".repeat(100_000));
    const controller = new AbortController();
    const reason = new Error("enough");
    const reading = (async () => {
      for await (const _ of readJsonLines(path, { signal: controller.signal })) controller.abort(reason);
    })();
    await expect(reading).rejects.toBe(reason);
  });

  it.skipIf(process.platform === "win32")("stops waiting for a silent file when aborted", async () => {
    const path = fresh("pipe.jsonl");
    execFileSync("mkfifo", [path]);
    // Opened for both, so that neither side waits for the other to open it.
    const writer = await open(path, "r+");
    onTestFinished(() => writer.close());
    await writer.write("1\n");
    const controller = new AbortController();
    const reason = new Error("enough");
    const reading = readJsonLines(path, { signal: controller.signal });
    expect((await reading.next()).value).toMatchObject({ line: 1, value: 1 });
    const waiting = reading.next();
    controller.abort(reason);
    // A read that is under way ends with the next byte; the file is closed after it. It may be rejected before the write has returned.
    const [outcome] = await Promise.allSettled([waiting, writer.write("2\n")]);
    expect(outcome).toEqual({ status: "rejected", reason });
  });

  it("returns the complete values of a truncated gzip file, then throws", async () => {
    const path = fresh("cut.jsonl.gz");
    await writeJsonLines(
      path,
      Array.from({ length: 50_000 }, (_, index) => index * 7919),
    );
    const bytes = await readFile(path);
    await writeFile(path, bytes.subarray(0, bytes.length / 2));
    const result = await read(path, { tornLine: "skip" });
    expect(result.error).toMatchObject({ code: "E_DATA", message: expect.stringContaining("cannot be read") as string });
    expect(result.lines.length).toBeGreaterThan(0);
    expect(values(result)).toEqual(result.lines.map((_, index) => index * 7919));
  });

  test.prop([fc.array(fc.json().map((text) => JSON.parse(text) as unknown)), fc.boolean()], { numRuns: 30 })(
    "reads the written records",
    async (items, isPacked) => {
      const path = fresh(isPacked ? "x.jsonl.gz" : "x.jsonl");
      const { count } = await writeJsonLines(path, items);
      expect(count).toBe(items.length);
      expect(values(await read(path))).toEqual(JSON.parse(JSON.stringify(items)));
    },
  );
});

describe("writeJsonLines", () => {
  it("returns the size and digest of the bytes on disk", async () => {
    const path = fresh("x.jsonl.gz");
    const written = await writeJsonLines(path, [{ a: 1 }, "ü"]);
    const bytes = await readFile(path);
    expect(written).toEqual({ path, count: 2, sizeBytes: bytes.length, sha256: createHash("sha256").update(bytes).digest("hex") });
    expect(gunzipSync(bytes).toString()).toBe('{"a":1}\n"ü"\n');
  });

  it.each([
    ["a number that is not finite", [{ a: Number.NaN }], /item 1.*`a` is NaN/],
    ["undefined", [1, undefined], /item 2/],
  ])("rejects %s, keeps the old file and leaves no temporary file", async (_, items, message) => {
    const path = fresh("kept.jsonl");
    await writeFile(path, "old");
    await expect(writeJsonLines(path, items)).rejects.toMatchObject({ code: "E_DATA", message: expect.stringMatching(message) });
    expect(await readFile(path, "utf8")).toBe("old");
    expect((await readdir(directory)).filter((name) => name.endsWith(".tmp"))).toEqual([]);
  });

  it("leaves no file when the source fails or the write is aborted", async () => {
    const broken = new Error("source");
    const path = fresh("none.jsonl");
    const failing = (async function* () {
      yield 1;
      throw broken;
    })();
    await expect(writeJsonLines(path, failing)).rejects.toBe(broken);
    const controller = new AbortController();
    const reason = new Error("enough");
    const endless = (async function* () {
      for (let value = 0; ; value++) {
        if (value === 10) controller.abort(reason);
        yield value;
      }
    })();
    await expect(writeJsonLines(path, endless, { signal: controller.signal })).rejects.toBe(reason);
    expect((await readdir(directory)).filter((name) => name.includes("none.jsonl"))).toEqual([]);
  });
});
