import { cp, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { DataError, UnsupportedError } from "../../../../src/errors.ts";
import { readSafetensors } from "../../../../src/engine/onnx/model/safetensors.ts";
import { openBaseWeights } from "../../../../src/engine/onnx/model/weight-source.ts";

const sharded = join(import.meta.dirname, "../../../oracle/families/llama3/model");
const INDEX = "model.safetensors.index.json";

/** A copy of a model in three files that a test may break. */
async function copyOfModel(): Promise<string> {
  const directory = await mkdtemp(join(tmpdir(), "whetstone-weights-"));
  onTestFinished(() => rm(directory, { recursive: true }));
  await cp(sharded, directory, { recursive: true });
  return directory;
}

async function changeIndex(directory: string, change: (map: Record<string, unknown>) => void): Promise<void> {
  const index = JSON.parse(await readFile(join(directory, INDEX), "utf8")) as { weight_map: Record<string, unknown> };
  change(index.weight_map);
  await writeFile(join(directory, INDEX), JSON.stringify(index));
}

/** A safetensors file of one tensor. */
function oneTensor(dtype: string, bytes: Buffer): Buffer {
  const width = dtype === "F32" ? 4 : 2;
  const header = Buffer.from(JSON.stringify({ x: { dtype, shape: [bytes.length / width], data_offsets: [0, bytes.length] } }));
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(header.length));
  return Buffer.concat([length, header, bytes]);
}

test("tensors of all files are found by name", async () => {
  const source = await openBaseWeights(sharded);
  expect(source.shapeOf("lm_head.weight")).toEqual([48, 32]);
  expect((await source.read("model.embed_tokens.weight")).length).toBe(48 * 32);
  expect(source.shapeOf("absent")).toBeUndefined();
  await expect(source.read("absent")).rejects.toThrow(/expected tensor "absent", found none/);
  await source.close();
});

test.each([
  ["a file outside", "../model-00001-of-00003.safetensors", /"weight_map.lm_head.weight" to be the name of a .safetensors file here/],
  ["an absolute path", "/etc/passwd", /got "\/etc\/passwd"/],
  ["no text", 3, /got 3/],
  ["a file that is not there", "gone.safetensors", /gone\.safetensors cannot be read/],
])("an index that names %s is refused", async (_, file, message) => {
  const directory = await copyOfModel();
  await changeIndex(directory, (map) => (map["lm_head.weight"] = file));
  await expect(openBaseWeights(directory)).rejects.toThrow(DataError);
  await expect(openBaseWeights(directory)).rejects.toThrow(message);
});

test("an index that is not one, and weights that are nowhere, are refused", async () => {
  const directory = await copyOfModel();
  await writeFile(join(directory, INDEX), "{}");
  await expect(openBaseWeights(directory)).rejects.toThrow(/expected "weight_map" to be an object/);
  await writeFile(join(directory, INDEX), "{");
  await expect(openBaseWeights(directory)).rejects.toThrow(/expected JSON/);
  await rm(join(directory, INDEX));
  await expect(openBaseWeights(directory)).rejects.toThrow(UnsupportedError);
  await expect(openBaseWeights(directory)).rejects.toThrow(/found no such file/);
});

test("every bfloat16 and float16 pattern is read as the number it is", async () => {
  const directory = await mkdtemp(join(tmpdir(), "whetstone-weights-"));
  onTestFinished(() => rm(directory, { recursive: true }));
  const bits = Uint16Array.from({ length: 65_536 }, (_, i) => i);
  const read = async (dtype: string) => {
    await writeFile(join(directory, dtype), oneTensor(dtype, Buffer.from(bits.buffer)));
    return (await readSafetensors(join(directory, dtype))).tensors.get("x")!.data;
  };
  // bfloat16 is the upper half of a float32.
  const view = new DataView(new ArrayBuffer(4));
  const bfloat16 = await read("BF16");
  const float16 = await read("F16");
  for (let i = 0; i < 65_536; i++) {
    view.setUint32(0, i * 65_536);
    if (!Object.is(bfloat16[i], view.getFloat32(0))) throw new Error(`bfloat16 ${i}: ${bfloat16[i]}`);
    // float16, from its bits in text: sign, five of exponent, ten of fraction.
    const text = i.toString(2).padStart(16, "0");
    const [sign, exponent, fraction] = [text[0] === "1" ? -1 : 1, parseInt(text.slice(1, 6), 2), parseInt(text.slice(6), 2)];
    const small = fraction * 2 ** -24;
    const usual = exponent === 31 ? (fraction ? NaN : Infinity) : 2 ** (exponent - 25) * (1024 + fraction);
    if (!Object.is(float16[i], sign * (exponent === 0 ? small : usual))) throw new Error(`float16 ${i}: ${float16[i]}`);
  }
  expect([bfloat16[0x3f80], bfloat16[0x8000], float16[0x3c00], float16[0x0001], float16[0xfbff]]).toEqual([1, -0, 1, 2 ** -24, -65_504]);
});
