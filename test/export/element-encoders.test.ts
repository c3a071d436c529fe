/** Encoded weights against NumPy, PyTorch and the Python package gguf; `test/oracle/element-types.py` wrote the values. */
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { ENCODERS, type ExportDtype } from "../../src/export/element-encoders.ts";
import { ORACLE } from "./support.ts";

const values = JSON.parse(await readFile(join(ORACLE, "element-types.json"), "utf8")) as Record<string, number[] & string>;
const numbers = (name: string): Float32Array => new Float32Array(Uint32Array.from(values[name]!).buffer);
const encoded = (dtype: ExportDtype, name: string): string => Buffer.from(ENCODERS[dtype].encode(numbers(name))).toString("hex");

test.each([
  ["float16", "narrow", "float16"],
  ["bfloat16", "narrow", "narrow_bfloat16"],
  ["bfloat16", "wide", "bfloat16"],
  ["q8_0", "blocks", "q8_0"],
] as const)("%s encodes the numbers of `%s` to the same bytes as the reference", (dtype, name, expected) => {
  expect(encoded(dtype, name)).toBe(values[expected]);
});

test("float32 keeps every bit", () => {
  expect(encoded("float32", "wide")).toBe(Buffer.from(Uint32Array.from(values["wide"]!).buffer).toString("hex"));
});

test.each([
  ["float16", 65520],
  ["bfloat16", 3.4e38],
] as const)("%s rejects %d, which would become infinite, with its index", (dtype, value) => {
  expect(() => ENCODERS[dtype].encode(Float32Array.of(1, -2, value))).toThrow(
    expect.objectContaining({
      code: "E_UNSUPPORTED",
      param: "dtype",
      message: expect.stringContaining(`range of ${dtype}, got ${Math.fround(value)} at element 2`),
    }),
  );
});
