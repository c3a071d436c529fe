import { cp, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { Trainer } from "../../../../src/engine/onnx/train/trainer.ts";

let scratch: string;
beforeAll(async () => void (scratch = await mkdtemp(join(tmpdir(), "whetstone-trainer-"))));
afterAll(() => rm(scratch, { recursive: true, force: true }));

test("reads a base once for all its models, and again after the last was unloaded", async () => {
  const directory = join(scratch, "base");
  await cp(join(import.meta.dirname, "../../../oracle/llama/model"), directory, { recursive: true });
  const trainer = new Trainer({ threads: 1 });
  const create = (options: object = {}) => trainer.createModel({ id: "base", directory }, { seed: 0, ...options });
  const weightsOf = (id: string) => trainer.weights(id).flat;
  // A model that does not load holds nothing.
  await expect(create({ from: join(scratch, "nothing") })).rejects.toThrow();
  const first = await create();
  const before = weightsOf(first);
  await changeLastWeight(join(directory, "model.safetensors"));

  const adapter = await create({ lora: { rank: 2 } });
  await trainer.unload(first);
  const second = await create();
  expect(weightsOf(second)).toEqual(before);
  await trainer.unload(second);
  await trainer.unload(second);
  const third = await create();
  expect(weightsOf(third)).toEqual(before);
  await trainer.unload(third);
  await trainer.unload(adapter);
  expect(weightsOf(await create())).not.toEqual(before);
});

async function changeLastWeight(path: string): Promise<void> {
  const bytes = await readFile(path);
  bytes.writeFloatLE(0.5, bytes.length - 4);
  await writeFile(path, bytes);
}
