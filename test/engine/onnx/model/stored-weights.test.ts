/** Matrices in blocks of 4 and 8 bits: values of GGUF files, and rounding as the Python package gguf rounds. */
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { type BlockBits, BlockWriter, dequantize, roundBlock } from "../../../../src/base/gguf/blocks.ts";
import { elementTypeOf } from "../../../../src/base/gguf/element-types.ts";
import { toFloat16 } from "../../../../src/base/util/float16.ts";
import { uniform } from "../../../../src/base/util/rng.ts";
import { readModelConfig } from "../../../../src/engine/onnx/model/config.ts";
import { baseLayout, type Layout, viewOf } from "../../../../src/engine/onnx/model/parameters.ts";
import { writeSafetensors } from "../../../../src/engine/onnx/model/safetensors.ts";
import { readStoredWeights, type StoredWeights, storeWeights, toFloat32 } from "../../../../src/engine/onnx/model/stored-weights.ts";
import { readBaseWeights, unpackTensors } from "../../../../src/engine/onnx/model/weights.ts";
import { ggufModel, interleaveHeads, readRawConfig } from "../../../../src/export/gguf/architecture.ts";
import { type WrittenTensor, writeGguf } from "../../../../src/export/gguf/writer.ts";
import { family, gunzipped, scratch } from "../../../export/support.ts";

const floats = (text: string) => new Float32Array(new Uint8Array(Buffer.from(text, "base64")).buffer);

test.each([
  ["Q4_0", 4],
  ["Q8_0", 8],
] as const)("rounds as %s of the package gguf", async (name, bits) => {
  const expected = await gunzipped<{ values: string; types: Record<string, string> }>("gguf-rounding.json.gz");
  const [values, rounded] = [floats(expected.values), floats(expected.types[name]!)];
  const writer = new BlockWriter(bits, values.length / 32);
  const levels = new Int8Array(32);
  for (let block = 0; block < values.length / 32; block++) {
    const scale = roundBlock(bits, values.subarray(32 * block, 32 * block + 32), levels);
    writer.write(block, levels, scale, 0);
  }
  const found = new Float32Array(values.length);
  dequantize(writer.tensor, 0, found);
  expect(writer.tensor.offsets).toBeNull();
  expect(found.map((each) => each + 0)).toEqual(rounded.map((each) => each + 0));
});

test.each([
  ["Q4_0", 4],
  ["Q4_0", 8],
  ["Q4_1", 4],
  ["Q4_1", 8],
  ["Q4_K", 4],
  ["Q8_0", 8],
] as const)("has the values of %s in %i bits, up to the rounding of an offset", async (name, bits) => {
  const { types } = await gunzipped<{ types: Record<string, { number: number; blocks: string; values: string }> }>("gguf-types.json.gz");
  const { number, blocks, values } = types[name]!;
  const { levels } = elementTypeOf(number, "file");
  const raw = Buffer.from(blocks, "base64");
  const expected = floats(values);
  const writer = new BlockWriter(bits, expected.length / 32);
  let block = 0;
  levels!.decode(new DataView(raw.buffer, raw.byteOffset, raw.length), (each, scale, offset) => writer.write(block++, each, scale, offset));
  const found = new Float32Array(expected.length);
  dequantize(writer.tensor, 0, found);
  const { scales, offsets } = writer.tensor;
  found.forEach((value, i) => {
    const rounding = 2 ** -23 * Math.abs(offsets?.[i >> 5] ?? 0) + (offsets ? 2 ** -20 * Math.abs(scales[i >> 5]!) : 0);
    expect(Math.abs(value - expected[i]!)).toBeLessThanOrEqual(rounding);
  });
});

/** Encoder of a type of GGUF, and the values that a file has after it. */
interface Encoder {
  readonly number: number;
  readonly bytes: number;
  readonly encode: (values: Float32Array) => { readonly bytes: Uint8Array; readonly values: Float32Array };
}

/** Encodes with random numbers `q`, so that no rounding could find the scales again. */
function encoder(hasMinimum: boolean): Encoder {
  const bytes = hasMinimum ? 20 : 18;
  const half = (value: number) => {
    const bits = toFloat16(Float32Array.of(value))[0]!;
    const [sign, exponent, fraction] = [bits & 0x8000 ? -1 : 1, (bits >> 10) & 31, bits & 1023];
    return { bits, value: sign * (1 + fraction / 1024) * 2 ** (exponent - 15) };
  };
  return {
    number: hasMinimum ? 3 : 2,
    bytes,
    encode(original) {
      const blocks = original.length / 32;
      const encoded = Buffer.alloc(blocks * bytes);
      const values = new Float32Array(original.length);
      for (let block = 0; block < blocks; block++) {
        const d = half(0.01 + 0.02 * uniform(1n, block));
        const m = half(-0.08 - 0.1 * uniform(2n, block));
        encoded.writeUInt16LE(d.bits, block * bytes);
        if (hasMinimum) encoded.writeUInt16LE(m.bits, block * bytes + 2);
        for (let i = 0; i < 32; i++) {
          const q = Math.floor(16 * uniform(3n, block, i));
          encoded[block * bytes + bytes - 16 + (i % 16)]! |= q << (i < 16 ? 0 : 4);
          values[block * 32 + i] = hasMinimum ? d.value * q + m.value : d.value * (q - 8);
        }
      }
      return { bytes: encoded, values };
    },
  };
}

/** Writes a GGUF file of a Llama model with matrices of whole blocks in one type, all others in float32. */
async function written(directory: string, { number, bytes, encode }: Encoder): Promise<string> {
  const config = await readModelConfig(directory);
  const model = ggufModel(await readRawConfig(directory), config);
  const layout = baseLayout(config);
  const tensors = unpackTensors(await readBaseWeights(directory, layout), layout).map(({ name: hubName, shape, data }): WrittenTensor => {
    const { name, interleavedHeads } = model.tensorOf(hubName);
    const ordered = interleavedHeads === 0 ? data : interleaveHeads(data, interleavedHeads, shape.length === 1 ? 1 : shape[1]!);
    if (shape.length === 1 || shape[1]! % 32 !== 0)
      return { name, shape, type: 0, bytes: ordered.byteLength, data: () => new Uint8Array(ordered.slice().buffer) };
    return { name, shape, type: number, bytes: (ordered.length / 32) * bytes, data: () => encode(ordered).bytes };
  });
  const path = join(await scratch(), "model.gguf");
  const metadata = new Map([...model.metadata, ["tokenizer.ggml.model", { type: "string", value: "none" }] as const]);
  await writeGguf(path, { metadata, tensors });
  return path;
}

/** Returns the weights as one float32 vector. */
function flatOf({ layout: rest, flat, blocks }: StoredWeights, layout: Layout): Float32Array {
  const all = new Float32Array(layout.length);
  for (const parameter of layout.parameters) {
    const matrix = blocks.get(parameter.name);
    const small = rest.parameters.find(({ name }) => name === parameter.name);
    viewOf(all, parameter).set(matrix ? toFloat32(matrix) : viewOf(flat, small!));
  }
  return all;
}

test.each([
  ["Q4_0", 4, false],
  ["Q4_0", 8, false],
  ["Q4_1", 4, true],
] as const)(
  "reads matrices of a GGUF file in %s to %i bits without rounding, rows of interleaved heads included",
  async (_, bits, hasMinimum) => {
    const path = await written(family("llama3", "model"), encoder(hasMinimum));
    const layout = baseLayout(await readModelConfig(path));
    const expected = await readBaseWeights(path, layout);
    const stored = await readStoredWeights(path, layout, `int${bits}`);
    const found = flatOf(stored, layout);
    for (const parameter of layout.parameters) {
      const [a, b] = [viewOf(found, parameter), viewOf(expected, parameter)];
      const worst = a.reduce((max, each, i) => Math.max(max, Math.abs(each - b[i]!)), 0);
      // Rows of 40 elements are float32 in the file, and rounded.
      if (parameter.name.endsWith("_down")) expect(worst).toBeGreaterThan(1e-5);
      else expect(worst).toBeLessThan(hasMinimum ? 1e-7 : 1e-30);
    }
  },
);

test("rounds every matrix and embedding of a directory, and keeps gains and biases", async () => {
  const directory = family("qwen2", "model");
  const layout = baseLayout(await readModelConfig(directory));
  const expected = await readBaseWeights(directory, layout);
  const bytesOf = ({ flat, blocks }: StoredWeights) =>
    [...blocks.values()].reduce((sum, { q, scales }) => sum + q.byteLength + scales.byteLength, flat.byteLength);
  for (const [precision, bits] of [
    ["int4", 4],
    ["int8", 8],
  ] as const) {
    const stored = await readStoredWeights(directory, layout, precision);
    expect(bytesOf(stored)).toBeLessThan(bytesOf(await readStoredWeights(directory, layout, "float32")) * (bits === 4 ? 0.35 : 0.5));
    const found = flatOf(stored, layout);
    for (const parameter of layout.parameters) {
      const [a, b] = [viewOf(found, parameter), viewOf(expected, parameter)];
      if (parameter.kind === "gain" || parameter.kind === "bias") {
        expect(a).toEqual(b);
        continue;
      }
      const largest = b.reduce((max, each) => Math.max(max, Math.abs(each)), 0);
      const worst = a.reduce((max, each, i) => Math.max(max, Math.abs(each - b[i]!)), 0);
      expect(worst).toBeGreaterThan(0);
      expect(worst).toBeLessThan((largest / (bits === 4 ? 8 : 127)) * 1.01);
    }
    expect(flatOf(await storeWeights(expected, layout, precision), layout)).toEqual(found);
  }
});

test("a weight beyond the range of the blocks, and one that is not finite, is an error with the name of its tensor", async () => {
  const directory = family("qwen2", "model");
  const layout = baseLayout(await readModelConfig(directory));
  const weights = await readBaseWeights(directory, layout);
  const name = "model.layers.1.mlp.up_proj.weight";
  for (const [value, message] of [
    [1e6, `tensor "${name}": expected weights of at most 65504 times 8, got 1000000`],
    [NaN, `expected tensor "${name}" to hold finite numbers`],
  ] as const) {
    const copy = await scratch();
    await writeFile(join(copy, "config.json"), await readFile(join(directory, "config.json")));
    const tensors = unpackTensors(weights, layout).map((tensor) =>
      tensor.name === name ? { ...tensor, data: tensor.data.with(7, value) } : tensor,
    );
    await writeSafetensors(join(copy, "model.safetensors"), tensors);
    await expect(readStoredWeights(copy, layout, "int4")).rejects.toMatchObject({
      code: "E_DATA",
      message: expect.stringContaining(message) as string,
    });
  }
});

test("a row that is no multiple of 32 elements ends with a padded block", async () => {
  const bits: BlockBits = 4;
  const directory = family("llama3", "model");
  const layout = baseLayout(await readModelConfig(directory));
  const { blocks } = await readStoredWeights(directory, layout, `int${bits}`);
  const { rows, width, q, scales } = blocks.get("layer0_down")!;
  expect([rows, width, q.length, scales.length]).toEqual([32, 40, 32 * 32, 32 * 2]);
  const padding = Array.from({ length: rows }, (_, row) => [...q.subarray(row * 32 + 20, (row + 1) * 32)]).flat();
  expect(new Set(padding)).toEqual(new Set([0x88]));
});
