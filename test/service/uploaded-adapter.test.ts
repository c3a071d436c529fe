/** Adapters in PEFT's layout that a client uploads: broken files are rejected with the tensor's name, without a path of the server. */
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { readModelConfig } from "../../src/engine/onnx/model/config.ts";
import { adapterLayout } from "../../src/engine/onnx/model/parameters.ts";
import { ADAPTER_FILE } from "../../src/engine/onnx/model/peft.ts";
import { type NamedTensor, writeSafetensors } from "../../src/engine/onnx/model/safetensors.ts";
import { unpackTensors } from "../../src/engine/onnx/model/weights.ts";
import { startService } from "../../src/service/index.ts";
import { fileWith } from "./base-files.ts";
import { ARTIFACTS, MODELS, temporaryDirectory } from "./support.ts";

const BASE = join(import.meta.dirname, "../../models/whetstone-tiny");
const RANK = 2;

test("rejects an invalid uploaded adapter with the tensor's name", async () => {
  const dataDir = await temporaryDirectory();
  const service = await startService({ dataDir });
  onTestFinished(() => service.close({ graceMs: 0 }));
  const request = async (method: string, path: string, body?: object | Buffer) => {
    const isJson = body !== undefined && !Buffer.isBuffer(body);
    const response = await fetch(service.url + path, {
      method,
      headers: { authorization: `Bearer ${service.apiKey}`, ...(isJson ? { "content-type": "application/json" } : {}) },
      ...(body === undefined ? {} : { body: isJson ? JSON.stringify(body) : new Uint8Array(body as Buffer) }),
    });
    return { status: response.status, body: (await response.json()) as any };
  };

  const layout = adapterLayout(await readModelConfig(BASE), RANK);
  const [first, ...rest] = unpackTensors(new Float32Array(layout.length).fill(0.01), layout) as [NamedTensor, ...NamedTensor[]];
  const scratch = await temporaryDirectory();
  let count = 0;
  const fileOf = async (tensors: readonly NamedTensor[]) => {
    const path = join(scratch, `${count++}.safetensors`);
    await writeSafetensors(path, tensors);
    return readFile(path);
  };
  const config = Buffer.from(JSON.stringify({ peft_type: "LORA", r: RANK, lora_alpha: 2 * RANK }));
  const importAdapter = async (weights: Buffer) => {
    const { body: version } = await request("POST", ARTIFACTS, { project: "demo", name: `adapter-${count++}` });
    for (const [name, bytes] of [
      ["adapter_config.json", config],
      [ADAPTER_FILE, weights],
    ] as const)
      expect((await request("PUT", `${ARTIFACTS}/${version.id}/files/${name}`, bytes)).status).toBe(200);
    const { url } = (await request("POST", `${ARTIFACTS}/${version.id}/commit`)).body;
    return request("POST", MODELS, { project: "demo", name: `m${count++}`, base_model: "whetstone-tiny", from: url });
  };
  const withValue = (value: number) => ({ ...first, data: first.data.with(3, value) });
  const head = { name: "base_model.model.lm_head.lora_A.weight", shape: [RANK, 128], data: new Float32Array(RANK * 128) };
  const f32 = (start: number, end: number) => ({ dtype: "F32", shape: [(end - start) / 4], data_offsets: [start, end] });
  for (const [weights, code, message] of [
    [await fileOf([withValue(NaN), ...rest]), "E_DATA", `tensor "${first.name}" to hold finite numbers, got NaN at element 3`],
    [await fileOf([first, ...rest, head]), "E_DATA", 'tensor "base_model.model.lm_head.lora_A.weight" belongs to no linear layer'],
    [await fileOf([{ ...first, shape: [1, first.data.length] }, ...rest]), "E_DATA", `expected tensor "${first.name}" of shape`],
    [fileWith({ a: f32(0, 8), b: f32(4, 12) }, 12), "E_DATA", 'tensor "b" overlaps the one before it'],
    [fileWith({ a: { dtype: "F8_E4M3", shape: [4], data_offsets: [0, 4] } }, 4), "E_UNSUPPORTED", 'tensor "a" has type F8_E4M3'],
  ] as const) {
    const { status, body } = await importAdapter(weights);
    expect(body.error.message).toContain(message);
    expect(body.error.message).toMatch(/^artifact:\/\/\/local\/demo\/adapter-\d+:v0: adapter_model\.safetensors: /);
    expect({ status, body }).toMatchObject({ status: 422, body: { error: { error_code: code, param: "from" } } });
    for (const directory of [dataDir, scratch, BASE]) expect(JSON.stringify(body)).not.toContain(directory);
  }
  expect((await importAdapter(await fileOf([first, ...rest]))).status).toBe(200);
});
