/** Creates a base model for the embedded engine with files that a test can break. */
import { join } from "node:path";
import { parseModelConfig } from "../../src/engine/onnx/model/config.ts";
import { baseLayout } from "../../src/engine/onnx/model/parameters.ts";
import { writeSafetensors } from "../../src/engine/onnx/model/safetensors.ts";
import { WEIGHTS_FILE } from "../../src/engine/onnx/model/weight-source.ts";
import { unpackTensors } from "../../src/engine/onnx/model/weights.ts";
import { modelDirectory, modelFiles } from "../tokenizer/fixture.ts";

/** Its `config.json`. */
export const CONFIG = {
  ...(modelFiles()["config.json"] as { vocab_size: number }),
  architectures: ["LlamaForCausalLM"],
  hidden_size: 8,
  num_hidden_layers: 1,
  num_attention_heads: 2,
  intermediate_size: 16,
  max_position_embeddings: 32,
  tie_word_embeddings: true,
};

/** Path of its weights. */
export const weights = (directory: string) => join(directory, WEIGHTS_FILE);

/** Writes its weights, all zero. */
export async function writeWeights(directory: string): Promise<void> {
  const layout = baseLayout(parseModelConfig(CONFIG, "test"));
  await writeSafetensors(weights(directory), unpackTensors(new Float32Array(layout.length), layout));
}

/** Writes the whole base model; returns its directory. */
export async function writeBase(): Promise<string> {
  const directory = await modelDirectory({ "config.json": CONFIG });
  await writeWeights(directory);
  return directory;
}

/** A safetensors file with this header and `bytes` of data. */
export function fileWith(header: unknown, bytes = 0): Buffer {
  const text = Buffer.from(JSON.stringify(header));
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(text.length));
  return Buffer.concat([length, text, Buffer.alloc(bytes)]);
}
