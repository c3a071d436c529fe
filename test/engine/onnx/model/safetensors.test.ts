import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, onTestFinished, test } from "vitest";
import { openSafetensors, type OpenSafetensors } from "../../../../src/engine/onnx/model/safetensors.ts";
import { readSafetensors } from "../../../support/safetensors.ts";

/** Writes a file with this header and data; returns its path. */
async function fileOf(header: object, data: Uint8Array): Promise<string> {
  const directory = await mkdtemp(join(tmpdir(), "whetstone-safetensors-"));
  onTestFinished(() => rm(directory, { recursive: true }));
  const text = Buffer.from(JSON.stringify(header));
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(text.length));
  const path = join(directory, "x.safetensors");
  await writeFile(path, Buffer.concat([length, text, data]));
  return path;
}

/** A file of one tensor `x`. */
function oneTensor(dtype: string, data: Uint8Array): Promise<string> {
  const width = dtype === "F32" ? 4 : 2;
  return fileOf({ x: { dtype, shape: [data.length / width], data_offsets: [0, data.length] } }, data);
}

async function withFile<T>(path: string, use: (file: OpenSafetensors) => Promise<T>): Promise<T> {
  const file = await openSafetensors(path);
  try {
    return await use(file);
  } finally {
    await file.close();
  }
}

describe("tensors", () => {
  const f32 = (start: number, end: number, shape = [(end - start) / 4]) => ({ dtype: "F32", shape, data_offsets: [start, end] });

  test.each([
    [
      "overlap",
      { a: f32(0, 8), b: f32(4, 12) },
      12,
      /^x\.safetensors: tensor "b" overlaps the one before it: expected its data to start at byte 8, got 4$/,
    ],
    ["share all their bytes", { a: f32(0, 8), b: f32(0, 8) }, 8, /tensor "b" overlaps/],
    [
      "leave a hole",
      { a: f32(0, 8), b: f32(12, 16) },
      16,
      /tensor "b" leaves a hole before it: expected its data to start at byte 8, got 12/,
    ],
    ["begin after the start", { a: f32(4, 8) }, 8, /tensor "a" leaves a hole before it: expected its data to start at byte 0, got 4/],
    ["end before the file does", { a: f32(0, 8) }, 12, /expected 8 bytes of data, as the header describes, got 12/],
    ["are none, but there is data", {}, 4, /expected 0 bytes of data/],
    ["end after the file does", { a: f32(0, 8) }, 4, /tensor "a" does not lie inside the file/],
    ["have another size than their shape", { a: f32(0, 8, [3]) }, 8, /tensor "a" does not lie inside the file/],
    ["have negative sizes", { a: f32(0, 16, [-2, -2]) }, 16, /does not describe tensor "a"/],
    ["end before they start", { a: f32(8, 0, [-2]) }, 8, /does not describe tensor "a"/],
  ] as const)("that %s are rejected", async (_, header, bytes, message) => {
    const path = await fileOf(header, new Uint8Array(bytes));
    await expect(openSafetensors(path)).rejects.toMatchObject({ code: "E_DATA", message: expect.stringMatching(message) });
  });

  test("may be in any order and empty", async () => {
    const path = await fileOf({ b: f32(8, 16), empty: f32(8, 8), a: f32(0, 8) }, new Uint8Array(new Float32Array([1, 2, 3, 4]).buffer));
    const { tensors } = await readSafetensors(path);
    expect([...tensors].map(([name, { data }]) => [name, [...data]])).toEqual([
      ["b", [3, 4]],
      ["empty", []],
      ["a", [1, 2]],
    ]);
  });
});

test("reads every finite bfloat16 and float16 pattern as its number, and rejects infinities and NaN of both signs", async () => {
  // bfloat16 is the upper half of a float32.
  const view = new DataView(new ArrayBuffer(4));
  const bfloat16 = (i: number) => {
    view.setUint32(0, i * 65_536);
    return view.getFloat32(0);
  };
  // float16, from its bits in text: sign, five of exponent, ten of fraction.
  const float16 = (i: number) => {
    const text = i.toString(2).padStart(16, "0");
    const [sign, exponent, fraction] = [text[0] === "1" ? -1 : 1, parseInt(text.slice(1, 6), 2), parseInt(text.slice(6), 2)];
    const usual = exponent === 31 ? (fraction ? NaN : Infinity) : 2 ** (exponent - 25) * (1024 + fraction);
    return sign * (exponent === 0 ? fraction * 2 ** -24 : usual);
  };
  for (const [dtype, valueOf] of [
    ["BF16", bfloat16],
    ["F16", float16],
  ] as const) {
    const all = Array.from({ length: 65_536 }, (_, i) => i);
    const finite = all.filter((i) => Number.isFinite(valueOf(i)));
    const read = await readSafetensors(await oneTensor(dtype, new Uint8Array(Uint16Array.from(finite).buffer)));
    const data = read.tensors.get("x")!.data;
    for (const [at, i] of finite.entries()) if (!Object.is(data[at], valueOf(i))) throw new Error(`${dtype} ${i}: ${data[at]}`);
    const others = all.filter((i) => !Number.isFinite(valueOf(i)));
    // Both infinities and NaN of either sign; writing a file for each takes too long for all.
    for (const i of [others[0]!, others[1]!, others.at(-1)!, others[others.length / 2]!]) {
      const path = await oneTensor(dtype, new Uint8Array(Uint16Array.of(0, 1, i, 2).buffer));
      const refused = {
        code: "E_DATA",
        message: `x.safetensors: expected tensor "x" to hold finite numbers, got ${valueOf(i)} at element 2`,
      };
      await expect(readSafetensors(path)).rejects.toMatchObject(refused);
      await expect(withFile(path, (file) => file.check("x"))).rejects.toMatchObject(refused);
    }
  }
});

test("checks a float32 tensor of several chunks up to its last element", async () => {
  const values = new Float32Array(5 * 2 ** 20 + 3).fill(1);
  const path = await oneTensor("F32", new Uint8Array(values.buffer));
  await withFile(path, (file) => file.check("x"));
  for (const at of [0, 2 ** 21, values.length - 1]) {
    const broken = values.slice();
    broken[at] = -Infinity;
    const other = await oneTensor("F32", new Uint8Array(broken.buffer));
    await expect(withFile(other, (file) => file.check("x"))).rejects.toThrow(`got -Infinity at element ${at}`);
  }
});

test("gives the pieces of tensors that are read at the same time", async () => {
  const [a, b] = [0, 1].map((seed) => Float32Array.from({ length: 700_000 + seed }, (_, i) => i + seed / 2)) as [
    Float32Array,
    Float32Array,
  ];
  const entry = (start: number, { length, byteLength }: Float32Array) => ({
    dtype: "F32",
    shape: [length],
    data_offsets: [start, start + byteLength],
  });
  const data = Buffer.concat([a, b].map(({ buffer }) => new Uint8Array(buffer as ArrayBuffer)));
  const path = await fileOf({ a: entry(0, a), b: entry(a.byteLength, b) }, data);
  await withFile(path, async (file) => {
    const read = async (name: string, like: Float32Array) => {
      const values = new Float32Array(like.length);
      let pieces = 0;
      await file.readPieces(name, (piece, first) => {
        values.set(piece, first);
        pieces++;
      });
      expect(pieces).toBeGreaterThan(2);
      return Buffer.compare(Buffer.from(values.buffer), Buffer.from(like.buffer));
    };
    expect(await Promise.all([read("a", a), read("b", b), read("a", a)])).toEqual([0, 0, 0]);
  });
});

test("names a file that cannot be opened without its directory", async () => {
  const path = join(tmpdir(), "whetstone-nowhere", "x.safetensors");
  await expect(openSafetensors(path)).rejects.toThrow("x.safetensors cannot be read: ENOENT: no such file or directory");
  await expect(openSafetensors(path)).rejects.not.toThrow(tmpdir());
});
