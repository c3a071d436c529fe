import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { readAdapterConfig } from "../../../../src/engine/onnx/model/adapter-config.ts";
import { temporaryDirectory } from "../../../service/support.ts";

async function read(settings: object) {
  const path = join(await temporaryDirectory(), "adapter_config.json");
  await writeFile(path, JSON.stringify({ peft_type: "LORA", r: 4, lora_alpha: 8, ...settings }));
  return readAdapterConfig(path, "the adapter", "from");
}

test.each([
  {},
  { bias: "none", use_dora: false, modules_to_save: null, rank_pattern: {}, alora_invocation_tokens: null, lora_dropout: 0.1 },
  ...[true, false, null, "gaussian", "eva", "orthogonal"].map((init_lora_weights) => ({ init_lora_weights })),
])("accepts %j", async (settings) => {
  expect(await read(settings)).toEqual({ rank: 4, alpha: 8 });
});

test.each([
  ...["pissa", "pissa_niter_16", "olora", "corda", "loftq", "later"].map((name) => ["init_lora_weights", name] as const),
  ["alora_invocation_tokens", [1, 2]],
  ["use_dora", true],
  ["bias", "all"],
] as const)("`%s` of %j computes something else, and is rejected by name", async (name, value) => {
  await expect(read({ [name]: value })).rejects.toMatchObject({
    code: "E_UNSUPPORTED",
    param: "from",
    message: expect.stringContaining(`the adapter: \`${name}\` is not supported: got ${JSON.stringify(value)}`),
  });
});
