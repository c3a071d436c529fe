import { cp, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { DataError, UnsupportedError } from "../../../../src/base/errors.ts";
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

test("finds the tensors of all files by name", async () => {
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
])("rejects an index that names %s", async (_, file, message) => {
  const directory = await copyOfModel();
  await changeIndex(directory, (map) => (map["lm_head.weight"] = file));
  await expect(openBaseWeights(directory)).rejects.toThrow(DataError);
  await expect(openBaseWeights(directory)).rejects.toThrow(message);
});

test("rejects an invalid index and missing weights", async () => {
  const directory = await copyOfModel();
  await writeFile(join(directory, INDEX), "{}");
  await expect(openBaseWeights(directory)).rejects.toThrow(/expected "weight_map" to be an object/);
  await writeFile(join(directory, INDEX), "{");
  await expect(openBaseWeights(directory)).rejects.toThrow(/expected JSON/);
  await rm(join(directory, INDEX));
  await expect(openBaseWeights(directory)).rejects.toThrow(UnsupportedError);
  await expect(openBaseWeights(directory)).rejects.toThrow(/found no such file/);
});
