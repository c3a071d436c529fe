/** Adapter to export: the matrices of a directory in PEFT layout, checked against the configuration of the base model. */
import { join } from "node:path";
import { readAdapterConfig } from "../engine/onnx/model/adapter-config.ts";
import type { ModelConfig } from "../engine/onnx/model/config.ts";
import { type Adapter, adapterLayout } from "../engine/onnx/model/parameters.ts";
import { ADAPTER_CONFIG_FILE, ADAPTER_FILE, checkAdapter } from "../engine/onnx/model/peft.ts";
import { openSafetensors, type OpenSafetensors } from "../engine/onnx/model/safetensors.ts";
import { first, getOrThrow, itemAt } from "../base/util/values.ts";

/** Matrix of a linear layer's adapter, row-major: `A [rank, in]` or `B [out, rank]`. */
type MatrixName = "A" | "B";

/** Open adapter; matrices are read one at a time. */
export interface AdapterWeights extends Adapter {
  /** Names of the base's tensors that the adapter changes, such as `model.layers.0.mlp.up_proj.weight`, with their shapes `[out, in]`. */
  readonly targets: ReadonlyMap<string, readonly [number, number]>;
  /** Reads a matrix of a target as float32. */
  read(target: string, matrix: MatrixName): Promise<Float32Array>;
  close(): Promise<void>;
}

/**
 * Opens an adapter.
 *
 * @param directory - Directory in PEFT layout.
 * @param config - Configuration of the base model.
 * @throws DataError `E_DATA` for files that cannot be read, and for tensors that do not fit the base.
 * @throws UnsupportedError `E_UNSUPPORTED` for another kind of adapter.
 */
export async function openAdapterWeights(directory: string, config: ModelConfig): Promise<AdapterWeights> {
  const settings = await readAdapterConfig(join(directory, ADAPTER_CONFIG_FILE), ADAPTER_CONFIG_FILE);
  const file: OpenSafetensors = await openSafetensors(join(directory, ADAPTER_FILE));
  try {
    checkAdapter(file.shapes, adapterLayout(config, settings.rank));
  } catch (error) {
    await file.close();
    throw error;
  }
  const targets = targetsOf(file.shapes);
  return {
    ...settings,
    targets,
    read: (target, matrix) => file.read(tensorName(target, matrix)),
    close: () => file.close(),
  };
}

/** Returns the name of a matrix in PEFT layout. */
function tensorName(target: string, matrix: MatrixName): string {
  return `base_model.model.${target.replace(/weight$/u, `lora_${matrix}.weight`)}`;
}

/** Returns the tensors that the adapter changes, with their shapes, from the shapes of its matrices. */
function targetsOf(shapes: ReadonlyMap<string, readonly number[]>): Map<string, readonly [number, number]> {
  const targets = new Map<string, readonly [number, number]>();
  for (const [name, shape] of shapes) {
    const [, module] = /^base_model\.model\.(.+)\.lora_A\.weight$/u.exec(name) ?? [];
    if (module === undefined) continue;
    const target = `${module}.weight`;
    targets.set(target, [first(getOrThrow(shapes, tensorName(target, "B"))), itemAt(shape, 1)]);
  }
  return targets;
}
