import { openSafetensors } from "../../src/engine/onnx/model/safetensors.ts";

/** Contents of a file: tensors by name, converted to float32. */
export interface SafetensorsFile {
  readonly tensors: ReadonlyMap<string, { readonly shape: readonly number[]; readonly data: Float32Array }>;
}

/** Reads a whole file. F32, F16 and BF16 are converted exactly to float32. Throws the errors of `openSafetensors`. */
export async function readSafetensors(path: string): Promise<SafetensorsFile> {
  const file = await openSafetensors(path);
  try {
    const tensors = new Map<string, { shape: readonly number[]; data: Float32Array }>();
    for (const [name, shape] of file.shapes) tensors.set(name, { shape, data: await file.read(name) });
    return { tensors };
  } finally {
    await file.close();
  }
}
