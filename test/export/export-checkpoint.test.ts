/** Checkpoints of a service with the embedded engine, exported over HTTP and loaded again. */
import { copyFile, mkdir, mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { afterAll, beforeAll, beforeEach, describe, expect, test, vi } from "vitest";
import { readSafetensors } from "../support/safetensors.ts";
import { Trainer } from "../../src/engine/onnx/train/trainer.ts";
import type { Row } from "../../src/engine/port.ts";
import { exportCheckpoint } from "../../src/export/index.ts";
import { connect, type Model, type Service } from "../../src/index.ts";
import { startService, type RunningService } from "../../src/service/index.ts";
import { loadTokenizer } from "../../src/text/tokenizer/index.ts";
import { runHere } from "../cli/run-here.ts";
import { BASE, uploadExamples } from "../integration/support.ts";
import { readGguf } from "./read-gguf.ts";
import { scratch } from "./support.ts";

const TINY = resolve(import.meta.dirname, "../../models/whetstone-tiny");
const LORA = { rank: 4, alpha: 6 };
let running: RunningService;
let service: Service;
let full: Model;
let adapted: Model;
let home: string;
let directory: string;

beforeAll(async () => {
  home = await mkdtemp(join(tmpdir(), "whetstone-export-"));
  running = await startService({ dataDir: home });
  service = await connect({ baseUrl: running.url, apiKey: running.apiKey });
  const data = await uploadExamples(running, 6);
  full = await service.models.create({ project: "demo", name: "full", baseModel: BASE });
  adapted = await service.models.create({ project: "demo", name: "adapted", baseModel: BASE, lora: LORA });
  for (const model of [full, adapted]) await (await model.trainSft(data, { learningRate: 0.02 })).done();
}, 120_000);
afterAll(async () => {
  await service.close();
  await running.close({ graceMs: 0 });
  await rm(home, { recursive: true, force: true });
});
beforeEach(async () => {
  directory = await scratch();
});

const ROWS = [0, 1, 2].map((start): Row => {
  const tokens = Int32Array.from({ length: 40 }, (_, t) => (start * 37 + 7 * t + t * t) % 508);
  return { tokens, weights: Float32Array.from(tokens, (_, t) => (t === 0 ? 0 : 1)) };
});

/** Computes the log-probabilities of {@link ROWS} with a base model in a directory, optionally with an adapter. */
async function logprobs(base: string, adapter?: string): Promise<Float32Array[]> {
  const trainer = new Trainer({ threads: 1 });
  const options = adapter === undefined ? {} : { lora: LORA, from: adapter };
  const id = await trainer.createModel({ id: "base", directory: base }, { ...options, seed: 0 });
  return (await trainer.forward(id, ROWS, new AbortController().signal)).map((row) => row.slice());
}

const maxDifference = (a: readonly Float32Array[], b: readonly Float32Array[]): number =>
  Math.max(...a.flatMap((row, i) => [...row].map((value, t) => Math.abs(value - b[i]![t]!))));

const FILES = ["checkpoint.json", "config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"];

test("a fully trained model and a merged adapter, loaded as base models, give the trained log-probabilities", async () => {
  const [whole, merged, peft] = ["whole", "merged", "peft"].map((name) => join(directory, name)) as [string, string, string];
  expect(await exportCheckpoint(full, whole)).toMatchObject({
    path: whole,
    format: "huggingface",
    dtype: "float32",
    step: 1,
    files: FILES,
  });
  expect(await exportCheckpoint(adapted, merged, { step: 1 })).toMatchObject({
    model: "local/demo/adapted",
    baseModel: BASE,
    files: FILES,
    warnings: [],
  });
  const { files } = await exportCheckpoint(adapted, peft, { format: "peft" });
  expect(files).toEqual(["adapter_config.json", "adapter_model.safetensors", "checkpoint.json"]);

  const downloaded = join(directory, "downloaded");
  await (await full.checkpoint()).download(downloaded);
  const [exported, sent] = await Promise.all([whole, downloaded].map((path) => readFile(join(path, "model.safetensors"))));
  expect(exported!.equals(sent!)).toBe(true);
  const ofAdapter = await logprobs(TINY, peft);
  expect(maxDifference(await logprobs(merged), ofAdapter)).toBeLessThan(1e-4);
  expect(maxDifference(await logprobs(TINY), ofAdapter)).toBeGreaterThan(0.1);
  const chat = [{ role: "user", content: "hello" }];
  expect((await loadTokenizer(merged)).renderChat(chat)).toBe((await loadTokenizer(TINY)).renderChat(chat));
});

test("bfloat16 and float16 halve the file, and the configuration names the type", async () => {
  for (const dtype of ["bfloat16", "float16"] as const) {
    const path = join(directory, dtype);
    const { sizeBytes } = await exportCheckpoint(adapted, path, { dtype, base: TINY });
    expect(sizeBytes).toBeLessThan(1_700_000);
    expect(JSON.parse(await readFile(join(path, "config.json"), "utf8"))).toMatchObject({ torch_dtype: dtype });
    const [wide, narrow] = [await readSafetensors(join(TINY, "model.safetensors")), await readSafetensors(join(path, "model.safetensors"))];
    const gain = narrow.tensors.get("model.norm.weight")!.data;
    wide.tensors
      .get("model.norm.weight")!
      .data.forEach((value, i) => expect(Math.abs(gain[i]! - value)).toBeLessThanOrEqual(Math.abs(value) / 256));
  }
});

test("a GGUF file has the merged weights", async () => {
  const [path, merged] = [join(directory, "model.gguf"), join(directory, "merged")];
  await exportCheckpoint(adapted, merged);
  const { files, sizeBytes } = await exportCheckpoint(adapted, path, { format: "gguf", tokenizer: false });
  expect({ files, sizeBytes }).toEqual({ files: ["model.gguf"], sizeBytes: (await readFile(path)).length });
  const { metadata, tensors } = readGguf(path);
  expect(metadata).toMatchObject({ "general.architecture": "llama", "general.name": "local/demo/adapted:step1", "llama.block_count": 4 });
  const expected = (await readSafetensors(join(merged, "model.safetensors"))).tensors.get("model.layers.2.mlp.up_proj.weight")!.data;
  expect(new Float32Array(tensors.get("blk.2.ffn_up.weight")!.data.buffer, 0, expected.length)).toEqual(expected);
});

test("a GGUF adapter has the matrices of the checkpoint, and is written without the base's weights", async () => {
  const [path, peft, base] = ["adapter.gguf", "peft", "base"].map((name) => join(directory, name)) as [string, string, string];
  await exportCheckpoint(adapted, peft, { format: "peft" });
  await mkdir(base);
  await copyFile(join(TINY, "config.json"), join(base, "config.json"));
  const result = await exportCheckpoint(adapted, path, { format: "gguf-adapter", base });
  expect(result).toMatchObject({ format: "gguf-adapter", dtype: "float32", files: ["adapter.gguf"], warnings: [] });
  const { metadata, tensors } = readGguf(path);
  expect(metadata).toMatchObject({
    "general.type": "adapter",
    "general.architecture": "llama",
    "general.name": "local/demo/adapted:step1",
    "adapter.lora.alpha": LORA.alpha,
  });
  const expected = (await readSafetensors(join(peft, "adapter_model.safetensors"))).tensors;
  const b = expected.get("base_model.model.model.layers.2.mlp.up_proj.lora_B.weight")!;
  expect(tensors.get("blk.2.ffn_up.weight.lora_b")).toMatchObject({ shape: b.shape, type: 0 });
  expect(new Float32Array(tensors.get("blk.2.ffn_up.weight.lora_b")!.data.buffer)).toEqual(b.data);
  expect(tensors.size).toBe(expected.size);

  const q8 = await exportCheckpoint(adapted, `${path}.q8`, { format: "gguf-adapter", dtype: "q8_0" });
  expect(q8.sizeBytes).toBeLessThan(0.6 * result.sizeBytes);
});

test("an existing output is replaced only with `force`, and stays if the export fails", async () => {
  const path = join(directory, "out");
  await mkdir(path);
  await exportCheckpoint(full, path);
  await writeFile(join(path, "notes.txt"), "mine");
  await expect(exportCheckpoint(full, path)).rejects.toMatchObject({ code: "E_ARGUMENT", param: "path" });
  await expect(exportCheckpoint(full, path, { force: true, step: 7 })).rejects.toMatchObject({ code: "E_HTTP" });
  expect(await readdir(path)).toContain("notes.txt");
  await exportCheckpoint(full, path, { force: true });
  expect((await readdir(path)).toSorted()).toEqual(FILES);
  expect(await readdir(directory)).toEqual(["out"]);
});

test.each([
  ["full", { format: "peft" }, "format", "fully trained"],
  ["full", { format: "gguf-adapter" }, "format", "fully trained"],
  ["adapted", { format: "peft", dtype: "float16" }, "dtype", "keeps the type"],
  ["adapted", { dtype: "q8_0" }, "dtype", "q8_0"],
  ["adapted", { preTokenizer: "qwen2" }, "preTokenizer", 'only "gguf"'],
  ["adapted", { format: "gguf-adapter", preTokenizer: "qwen2" }, "preTokenizer", 'only "gguf"'],
  ["adapted", { tokenizer: false }, "tokenizer", 'only "gguf"'],
  ["adapted", { format: "gguf-adapter", tokenizer: false }, "tokenizer", 'only "gguf"'],
  ["adapted", { format: "gguf", tokenizer: false, preTokenizer: "qwen2" }, "preTokenizer", "without a tokenizer"],
  ["full", { base: TINY }, "base", "nothing is merged"],
] as const)("%s with %j is rejected before anything is downloaded", async (name, options, param, message) => {
  const model = name === "full" ? full : adapted;
  await expect(exportCheckpoint(model, join(directory, "out"), options)).rejects.toMatchObject({
    code: "E_ARGUMENT",
    param,
    message: expect.stringContaining(message),
  });
  expect(await readdir(directory)).toEqual([]);
});

test("a service that sends no base model leads to the option `base`", async () => {
  const download = service.checkpoints.download;
  const spy = vi.spyOn(service.checkpoints, "download").mockImplementation((id, step, target) => download(id, step, target));
  await expect(exportCheckpoint(adapted, join(directory, "out"))).rejects.toMatchObject({ code: "E_UNSUPPORTED", param: "base" });
  spy.mockRestore();
});

describe("whetstone export", () => {
  beforeEach(() => {
    vi.stubEnv("WHETSTONE_BASE_URL", running.url);
    vi.stubEnv("WHETSTONE_API_KEY", running.apiKey);
    return () => vi.unstubAllEnvs();
  });

  test("writes a checkpoint by model and step, and prints its files", async () => {
    const path = join(directory, "out");
    const { code, stdout } = await runHere("export", "demo/adapted:1", path);
    expect({ code, stdout }).toEqual({
      code: 0,
      stdout: expect.stringMatching(/^local\/demo\/adapted:step1 → .*out \(huggingface, float32, 3\.2 MB: checkpoint\.json, config\.json/u),
    });
    const json = await runHere("export", "demo/adapted:latest", `${path}.gguf`, "--format", "gguf", "--pre-tokenizer", "tekken", "--json");
    expect(JSON.parse(json.stdout)).toMatchObject({ format: "gguf", step: 1, warnings: [expect.stringContaining("tekken")] });
    const adapter = await runHere("export", "demo/adapted", `${path}-adapter.gguf`, "--format", "gguf-adapter", "--dtype", "q8_0");
    expect(adapter).toMatchObject({ code: 0, stdout: expect.stringMatching(/out-adapter\.gguf \(gguf-adapter, q8_0, \d+\.\d kB\)\n$/u) });
  });

  test("names models that exist, and rejects an invalid format as a usage error", async () => {
    expect(await runHere("export", "demo/none:1", join(directory, "out"))).toMatchObject({
      code: 1,
      stderr: expect.stringMatching(/"demo\/none" does not exist on this service, which has .*demo\/adapted/u),
    });
    expect(await runHere("export", "demo/full", "--format", "onnx")).toMatchObject({ code: 2, stderr: expect.stringContaining("gguf") });
  });
});
