/** Random weights in bfloat16 or float32, written tensor by tensor. */
import { open } from "node:fs/promises";
import { join } from "node:path";
import { readModelConfig } from "../../src/engine/onnx/model/config.ts";
import { baseLayout, fileShape } from "../../src/engine/onnx/model/parameters.ts";
import { safetensorsHeader } from "../../src/engine/onnx/model/safetensors.ts";
import { WEIGHTS_FILE } from "../../src/engine/onnx/model/weight-source.ts";
import { uniform } from "../../src/base/util/rng.ts";

/** Values that the tensors repeat; a prime number, so that rows of no width are equal. */
const PERIOD = 1_000_003;

/** Element types of the written tensors. */
export type WrittenType = "BF16" | "F32";

let drawn: Float32Array | undefined;

/** Returns the values that tensors repeat, drawn once in each process. */
function values(): Float32Array {
  drawn ??= Float32Array.from({ length: PERIOD }, (_, i) => 0.06 * (uniform(1n, i) - 0.5));
  return drawn;
}

/** Writes the weights of the model that the directory's `config.json` describes: gains 1, biases 0, all others uniform in ±0.03. */
export async function writeRandomWeights(directory: string, dtype: WrittenType = "BF16"): Promise<void> {
  const layout = baseLayout(await readModelConfig(directory));
  // The upper half of a float32, little-endian, is its bfloat16, rounded toward zero.
  const noise = dtype === "F32" ? new Uint32Array(values().buffer) : new Uint16Array(values().buffer).filter((_, i) => i % 2 === 1);
  const [width, one] = dtype === "F32" ? [4, 0x3f80_0000] : [2, 0x3f80];
  const tensors = layout.parameters.flatMap((parameter) =>
    parameter.files.map((file) => ({ name: file.name, kind: parameter.kind, shape: fileShape(parameter, file.width) })),
  );
  let offset = 0;
  const header = Object.fromEntries(
    tensors.map(({ name, shape }) => {
      const start = offset;
      offset += width * shape.reduce((a, b) => a * b, 1);
      return [name, { dtype, shape, data_offsets: [start, offset] }];
    }),
  );
  const file = await open(join(directory, WEIGHTS_FILE), "wx");
  try {
    await file.writeFile(safetensorsHeader(header));
    for (const { kind, shape } of tensors) {
      const length = shape.reduce((a, b) => a * b, 1);
      const data = dtype === "F32" ? new Uint32Array(length) : new Uint16Array(length);
      if (kind === "gain") data.fill(one);
      else if (kind !== "bias") for (let at = 0; at < length; at += PERIOD) data.set(noise.subarray(0, Math.min(PERIOD, length - at)), at);
      await file.writeFile(new Uint8Array(data.buffer));
    }
  } finally {
    await file.close();
  }
}
