/** Import of adapters from directories in PEFT layout without a `state.json` of this engine. */
import { join } from "node:path";
import { DataError } from "../../../base/errors.ts";
import { fileShape, type Layout, type Parameter, viewOf } from "./parameters.ts";
import { openSafetensors } from "./safetensors.ts";
import { packPiece } from "./weights.ts";
import { first } from "../../../base/util/values.ts";

/** Name of the weights file in PEFT layout. */
export const ADAPTER_FILE = "adapter_model.safetensors";
/** Name of the settings file in PEFT layout, see adapter-config.ts. */
export const ADAPTER_CONFIG_FILE = "adapter_config.json";

/**
 * Reads an adapter into a flat vector. A linear layer that the adapter does not contain keeps its `A` and gets `B = 0`, so that it
 * computes the same as the base and can be trained.
 *
 * @param parameters - Flat vector in `layout`. Unchanged if the file cannot be read or has an unexpected tensor.
 * @throws DataError `E_DATA` for a truncated file, a tensor of another shape, a tensor that belongs to no linear layer of this model, or
 *   an `A` without `B` or vice versa; the message names the tensor.
 */
export async function readForeignAdapter(directory: string, layout: Layout, parameters: Float32Array): Promise<void> {
  const file = await openSafetensors(join(directory, ADAPTER_FILE));
  try {
    checkAdapter(file.shapes, layout);
    // All tensors are read before the vector changes, so that it stays unchanged if a read fails.
    const tensors = new Map<string, Float32Array>();
    for (const name of file.shapes.keys()) tensors.set(name, await file.read(name));
    for (const parameter of layout.parameters) {
      const name = nameOf(parameter);
      const data = tensors.get(name);
      if (data !== undefined) packPiece(data, 0, parameter, viewOf(parameters, parameter), first(parameter.files));
      else if (isMatrixB(name)) viewOf(parameters, parameter).fill(0);
    }
  } finally {
    await file.close();
  }
}

/**
 * Checks that the tensors of an adapter fit a model.
 *
 * @param shapes - Shapes by tensor name.
 * @param layout - Layout of an adapter of the same rank on every linear layer of the model.
 * @throws DataError `E_DATA` for a tensor of another shape, a tensor that belongs to no linear layer, or an `A` without `B` or vice versa.
 */
export function checkAdapter(shapes: ReadonlyMap<string, readonly number[]>, layout: Layout): void {
  const parametersByName = new Map(layout.parameters.map((parameter) => [nameOf(parameter), parameter]));
  for (const [name, shape] of shapes) requireFit(name, shape, parametersByName);
  for (const name of shapes.keys()) {
    if (!shapes.has(pairOf(name)))
      throw new DataError(`${ADAPTER_FILE}: expected tensor "${pairOf(name)}" beside the other of its pair, found none`);
  }
}

/** @throws DataError `E_DATA` unless a tensor belongs to a parameter and has its shape. */
function requireFit(name: string, shape: readonly number[], parametersByName: ReadonlyMap<string, Parameter>): void {
  const parameter = parametersByName.get(name);
  if (parameter === undefined) {
    throw new DataError(
      `${ADAPTER_FILE}: tensor "${name}" belongs to no linear layer of the transformer's blocks of this base. Was the adapter made for another base, or for the embedding or the head?`,
    );
  }
  const expected = fileShape(parameter, first(parameter.files).width);
  if (expected.join() !== shape.join())
    throw new DataError(`${ADAPTER_FILE}: expected tensor "${name}" of shape [${expected.join(", ")}], got [${shape.join(", ")}]`);
}

/** Returns the tensor name of an adapter matrix, which is stored as a single tensor. */
function nameOf({ files }: Parameter): string {
  return first(files).name;
}

/** Whether a tensor is the matrix `B` of its pair. */
function isMatrixB(name: string): boolean {
  return name.endsWith(".lora_B.weight");
}

/** Returns the name of the other matrix of a tensor's pair: `B` for an `A`, and vice versa. */
function pairOf(name: string): string {
  return isMatrixB(name) ? name.replace(/lora_B\.weight$/u, "lora_A.weight") : name.replace(/lora_A\.weight$/u, "lora_B.weight");
}
