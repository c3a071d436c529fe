/** Between files in Hugging Face layout and the flat vector. */
import { access } from "node:fs/promises";
import { join } from "node:path";
import { DataError, UnsupportedError } from "../../../errors.ts";
import type { ModelConfig } from "./config.ts";
import { type Layout, type Parameter, viewOf } from "./parameters.ts";
import { type NamedTensor, readSafetensors, type SafetensorsFile } from "./safetensors.ts";

/** The weights file of a base model directory. */
export const WEIGHTS_FILE = "model.safetensors";

/**
 * Reads the tensors of `layout` from a file into a new flat vector.
 *
 * @throws DataError `E_DATA` when a tensor is missing or has another shape; the message names it.
 */
export async function readWeights(path: string, layout: Layout): Promise<Float32Array> {
  await access(path).catch((cause: unknown) => {
    throw new UnsupportedError(
      `Expected weights at ${path}, found no such file; weights split over several files are not carried out yet`,
      { cause },
    );
  });
  return packTensors(await readSafetensors(path), layout, path);
}

/** The same from a file's contents. */
export function packTensors(file: SafetensorsFile, layout: Layout, where: string): Float32Array {
  const flat = new Float32Array(layout.length);
  for (const parameter of layout.parameters) {
    const view = viewOf(flat, parameter);
    for (const { name, start, width } of parameter.files) {
      const tensor = file.tensors.get(name);
      const expected = fileShape(parameter, width);
      if (!tensor || tensor.shape.join() !== expected.join()) {
        throw new DataError(
          `${where}: expected tensor "${name}" of shape [${expected.join(", ")}], ${tensor ? `got [${tensor.shape.join(", ")}]` : "found none"}`,
        );
      }
      if (parameter.kind === "matrix") {
        const [rows, columns] = parameter.shape as [number, number];
        for (let out = 0; out < width; out++) {
          for (let row = 0; row < rows; row++) view[row * columns + start + out] = tensor.data[out * rows + row]!;
        }
      } else view.set(tensor.data);
    }
  }
  return flat;
}

/** The tensors of a flat vector as a file holds them: `[out, in]`, fused matrices apart. */
export function unpackTensors(flat: Float32Array, layout: Layout): NamedTensor[] {
  return layout.parameters.flatMap((parameter) => {
    const view = viewOf(flat, parameter);
    return parameter.files.map(({ name, start, width }): NamedTensor => {
      const shape = fileShape(parameter, width);
      if (parameter.kind !== "matrix") return { name, shape, data: view };
      const [rows, columns] = parameter.shape as [number, number];
      const data = new Float32Array(rows * width);
      for (let row = 0; row < rows; row++) {
        for (let out = 0; out < width; out++) data[out * rows + row] = view[row * columns + start + out]!;
      }
      return { name, shape, data };
    });
  });
}

function fileShape(parameter: Parameter, width: number): number[] {
  return parameter.kind === "matrix" ? [width, parameter.shape[0]!] : [...parameter.shape];
}

/** Reads a base model's weights. */
export function readBaseWeights(directory: string, layout: Layout): Promise<Float32Array> {
  return readWeights(join(directory, WEIGHTS_FILE), layout);
}

/** A source of standard normal numbers; `index` counts from 0. */
export type Normal = (index: number) => number;

/** Freshly made weights: gains 1, everything else normal with the configuration's deviation. */
export function initialWeights(config: ModelConfig, layout: Layout, normal: Normal): Float32Array {
  const flat = new Float32Array(layout.length);
  for (const parameter of layout.parameters) {
    const view = viewOf(flat, parameter);
    for (let i = 0; i < view.length; i++) view[i] = parameter.kind === "gain" ? 1 : config.initializerRange * normal(parameter.offset + i);
  }
  return flat;
}

/** Freshly made adapter weights: `A` uniform in ±1/√in (Kaiming with a = √5, as PEFT), `B` zero, so that the adapter starts as identity. */
export function initialAdapter(layout: Layout, uniform: (index: number) => number): Float32Array {
  const flat = new Float32Array(layout.length);
  for (const parameter of layout.parameters) {
    if (!parameter.name.endsWith("_a")) continue;
    const view = viewOf(flat, parameter);
    const bound = 1 / Math.sqrt(parameter.shape[0]!);
    for (let i = 0; i < view.length; i++) view[i] = bound * (2 * uniform(parameter.offset + i) - 1);
  }
  return flat;
}
