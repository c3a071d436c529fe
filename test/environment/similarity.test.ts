import { readFileSync } from "node:fs";
import { join } from "node:path";
import { gunzipSync } from "node:zlib";
import { describe, expect, it } from "vitest";
import { similarity } from "../../src/library/environment/index.ts";

/** Written by `test/oracle/similarity.py`. */
const { rows } = JSON.parse(gunzipSync(readFileSync(join(import.meta.dirname, "similarity.json.gz"))).toString("utf8")) as {
  readonly rows: readonly (readonly [a: string, b: string, ratio: number])[];
};

describe("similarity", () => {
  it("equals Python's difflib to the last bit, autojunk included, by code points", () => {
    expect(rows.length).toBeGreaterThan(200);
    const isLong = rows.filter(([, b]) => Array.from(b).length >= 200);
    expect(isLong.length).toBeGreaterThan(60);
    for (const [a, b, ratio] of rows) expect(similarity(a, b), `${a} / ${b}`).toBe(ratio);
  });

  it("is not symmetric, as in Python", () => {
    const asymmetric = rows.filter(([a, b]) => similarity(a, b) !== similarity(b, a));
    expect(asymmetric.length).toBeGreaterThan(0);
  });
});
