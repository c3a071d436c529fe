/** A GGUF file as the base model of a script: chat, training, archive and export; and base models of a service with allowed roots. */
import { copyFile, mkdir, mkdtemp, readdir, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { uploadDataset } from "../../src/library/dataset/index.ts";
import { exportCheckpoint } from "../../src/export/index.ts";
import { connect, type Service } from "../../src/index.ts";
import { startService } from "../../src/service/index.ts";
import { smallModel } from "../gguf/support.ts";

let directory: string;
let file: string;
let service: Service;
beforeAll(async () => {
  directory = await mkdtemp(join(tmpdir(), "whetstone-gguf-base-"));
  file = join(directory, "small.gguf");
  await writeFile(file, await smallModel());
  service = await connect({ dataDir: join(directory, "data"), baseModels: { small: file } });
});
afterAll(async () => {
  await service?.close();
  await rm(directory, { recursive: true, force: true });
});

const messages = [{ role: "user" as const, content: "Hello" }];

async function answerOf(model: string, from = service): Promise<string> {
  const { choices } = await from.chat.completions.create({ model, messages, temperature: 0, max_tokens: 4 });
  return choices[0]!.message.content ?? "";
}

const DATASET = [{ messages: [...messages, { role: "assistant" as const, content: "Ahoy" }] }];

test("connect starts the embedded service with the file under the given identifier", async () => {
  expect(await service.baseModels()).toContain("small");
  expect((await answerOf("small")).length).toBeGreaterThan(0);
});

test("a second connection adds files to the running service", async () => {
  const other = join(directory, "other.gguf");
  await copyFile(file, other);
  const second = await connect({ dataDir: join(directory, "data"), baseModels: { second: other } });
  try {
    expect(await second.baseModels()).toEqual(expect.arrayContaining(["small", "second"]));
    expect(await answerOf("second", second)).toBe(await answerOf("small"));
    // Without an identifier, the path is the name.
    const named = await second.addBaseModel(other);
    expect(await answerOf(named, second)).toBe(await answerOf("small"));
    await expect(second.addBaseModel(file, { id: "second" })).rejects.toMatchObject({ status: 409 });
    await expect(second.addBaseModel(join(directory, "none.gguf"))).rejects.toMatchObject({ status: 404 });
  } finally {
    await second.close();
  }
});

test("a file that cannot be loaded is an error of connect with the cause", async () => {
  const broken = join(directory, "broken.gguf");
  await writeFile(broken, (await smallModel()).subarray(0, 5000));
  await expect(connect({ dataDir: join(directory, "none"), baseModels: { broken } })).rejects.toMatchObject({ code: "E_BASE_MODEL" });
  await expect(service.addBaseModel(broken)).rejects.toMatchObject({ status: 422, serviceCode: "E_BASE_MODEL" });
});

test.each([
  { label: "an adapter", lora: { rank: 4 } },
  { label: "every parameter", lora: undefined },
])("$label: a trained checkpoint is archived and exported as a model that answers the same", async ({ label, lora }) => {
  const model = await service.models.create({ project: "demo", name: label.replaceAll(" ", "-"), baseModel: "small", lora });
  const data = await uploadDataset(service, { name: label.replaceAll(" ", "-"), project: "demo", train: DATASET });
  await (await model.trainSft(data, { learningRate: 1e-2 })).done();
  const { id } = await model.policy();
  const expected = await answerOf(id);
  const archived = join(directory, `archived ${label}`);
  await service.checkpoints.download(model.id, "latest", archived, lora ? { includeBase: true } : {});
  const exported = join(directory, `exported ${label}`);
  await exportCheckpoint(model, exported, { format: "huggingface" });
  const gguf = join(directory, `exported ${label}.gguf`);
  await exportCheckpoint(model, gguf, { format: "gguf" });
  // The archive of an adapter holds the adapter and its base; the other directories are whole models.
  for (const path of lora ? [exported, gguf] : [archived, exported, gguf])
    expect(await answerOf(await service.addBaseModel(path))).toBe(expected);
  if (lora) expect(await readdir(archived)).toEqual(expect.arrayContaining(["adapter_config.json", "base"]));
});

test.each([
  { option: "format", options: { format: "hf" } },
  { option: "dtype", options: { dtype: "int4" } },
])("an unknown $option of an export is rejected", async ({ option, options }) => {
  const model = await service.models.create({ project: "demo", name: `unknown-${option}`, baseModel: "small" });
  const path = join(directory, "unknown");
  await expect(exportCheckpoint(model, path, options as object)).rejects.toMatchObject({ code: "E_ARGUMENT", param: option });
});

test("a service with allowed roots accepts files below them, and no others", async () => {
  const allowed = join(directory, "allowed");
  await mkdir(allowed);
  await copyFile(file, join(allowed, "small.gguf"));
  const running = await startService({ dataDir: join(directory, "shared"), allowedBaseRoots: [allowed] });
  const shared = await connect({ baseUrl: running.url, apiKey: running.apiKey });
  try {
    expect(await answerOf(await shared.addBaseModel(join(allowed, "small.gguf")), shared)).toBe(await answerOf("small"));
    for (const path of [file, join(allowed, "..", "small.gguf")])
      await expect(shared.addBaseModel(path)).rejects.toMatchObject({ status: 404 });
  } finally {
    await shared.close();
    await running.close({ graceMs: 0 });
  }
});
