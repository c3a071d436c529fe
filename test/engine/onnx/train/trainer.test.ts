import { cp, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { Trainer } from "../../../../src/engine/onnx/train/trainer.ts";

let scratch: string;
beforeAll(async () => void (scratch = await mkdtemp(join(tmpdir(), "whetstone-trainer-"))));
afterAll(() => rm(scratch, { recursive: true, force: true }));

test("reads a base once for all its adapters, and again after the last was unloaded", async () => {
  const directory = join(scratch, "base");
  await cp(join(import.meta.dirname, "../../../oracle/llama/model"), directory, { recursive: true });
  const trainer = new Trainer({ threads: 1 });
  const create = (options: object = {}) => trainer.createModel({ id: "base", directory }, { seed: 0, lora: { rank: 2 }, ...options });
  const row = { tokens: Int32Array.from({ length: 12 }, (_, t) => (t * 5) % 48), weights: new Float32Array(12).fill(1, 1) };
  const logprobsOf = async (id: string) => (await trainer.forward(id, [row], new AbortController().signal))[0]!;
  // A model that does not load holds nothing.
  await expect(create({ from: join(scratch, "nothing") })).rejects.toThrow();
  const first = await create();
  const before = await logprobsOf(first);
  await changeLastWeight(join(directory, "model.safetensors"));

  const second = await create();
  await trainer.unload(first);
  const third = await create();
  expect(await logprobsOf(third)).toEqual(before);
  await trainer.unload(third);
  await trainer.unload(third);
  // A fully trained model reads weights of its own, so that they are not in memory twice.
  const full = await create({ lora: undefined });
  expect(await logprobsOf(full)).not.toEqual(before);
  const fourth = await create();
  expect(await logprobsOf(fourth)).toEqual(before);
  for (const id of [second, fourth]) await trainer.unload(id);
  expect(await logprobsOf(await create())).not.toEqual(before);
});

async function changeLastWeight(path: string): Promise<void> {
  const bytes = await readFile(path);
  bytes.writeFloatLE(0.5, bytes.length - 4);
  await writeFile(path, bytes);
}
