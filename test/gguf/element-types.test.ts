/** Types of ggml against the Python package gguf: bit by bit. */
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { gunzipSync } from "node:zlib";
import { expect, test } from "vitest";
import { elementTypeOf } from "../../src/base/gguf/element-types.ts";

interface Expected {
  readonly types: Readonly<Record<string, { readonly number: number; readonly blocks: string; readonly values: string }>>;
}

const path = join(import.meta.dirname, "..", "oracle", "gguf-types.json.gz");
const { types } = JSON.parse(gunzipSync(await readFile(path)).toString()) as Expected;

test.each(Object.keys(types))("%s equals the reference bit by bit", (name) => {
  const { number, blocks, values } = types[name]!;
  const type = elementTypeOf(number, "file");
  expect(type.name).toBe(name);
  const raw = Buffer.from(blocks, "base64");
  const expected = Buffer.from(values, "base64");
  const decoded = new Float32Array((raw.length / type.blockBytes) * type.blockSize);
  expect(decoded.byteLength).toBe(expected.length);
  type.decode(new DataView(raw.buffer, raw.byteOffset, raw.length), decoded);
  expect(Buffer.from(decoded.buffer).equals(expected)).toBe(true);
});

test("other types are rejected by name", () => {
  expect(() => elementTypeOf(10, "m.gguf")).toThrow(/m\.gguf: type Q2_K is not supported, .*Q6_K/u);
  expect(() => elementTypeOf(20, "m.gguf")).toThrow(/IQ4_NL/u);
  expect(() => elementTypeOf(77, "m.gguf")).toThrow(/got 77/u);
});
