/** Conversion of weights between files in Hugging Face layout and the flat vector, and initialization. */
import { DataError } from "../../../base/errors.ts";
import type { ModelConfig } from "./config.ts";
import { baseLayout, fileShape, type FileTensor, type Layout, type Parameter, viewOf } from "./parameters.ts";
import type { NamedTensor, WeightSource } from "./safetensors.ts";
import { uniform } from "../../../base/util/rng.ts";
import { openBaseWeights, openWeights } from "./weight-source.ts";
import { itemAt } from "../../../base/util/values.ts";

/**
 * Reads the tensors of `layout` from a file into a new flat vector.
 *
 * @throws DataError `E_DATA` if a tensor is missing or has another shape; the message names the tensor.
 */
export async function readWeights(path: string, layout: Layout): Promise<Float32Array> {
  return packTensors(await openWeights(path), layout);
}

/** Reads a base model's weights from one file, or from several files with an index. */
export async function readBaseWeights(directory: string, layout: Layout): Promise<Float32Array> {
  return packTensors(await openBaseWeights(directory), layout);
}

/**
 * Checks that every tensor of `layout` exists with the expected shape.
 *
 * @throws DataError `E_DATA` for the first tensor that is missing or has another shape; the message names the tensor.
 */
export function checkShapes(source: WeightSource, layout: Layout): void {
  for (const parameter of layout.parameters) {
    for (const { name, width } of parameter.files) {
      const expected = fileShape(parameter, width);
      const found = source.shapeOf(name);
      if (found?.join() !== expected.join()) {
        throw new DataError(
          `${source.label}: expected tensor "${name}" of shape [${expected.join(", ")}], ${found ? `got [${found.join(", ")}]` : "found none"}`,
        );
      }
    }
  }
}

/** Checks the values of all tensors. @param onTensor - Called after each tensor. */
async function checkValues(source: WeightSource, layout: Layout, onTensor: () => void = () => {}): Promise<void> {
  for (const { files } of layout.parameters) {
    for (const { name } of files) {
      await source.check(name);
      onTensor();
    }
  }
}

/**
 * Verifies a base model's weights against its configuration, without keeping them in memory: names, shapes, types, file offsets and values
 * of all tensors. Weights that pass can be loaded.
 *
 * @param options.readsValues - Whether the values are checked, which reads the whole files. @default true
 * @param options.onTensor - Called after each tensor with checked values. @default no callback
 * @throws UnsupportedError `E_UNSUPPORTED` if there are no weights, or for an unsupported element type.
 * @throws DataError `E_DATA` for a file that cannot be read or is truncated, and for a tensor that is missing, has another shape, or
 *   contains NaN or an infinity.
 */
export async function verifyWeights(
  directory: string,
  config: ModelConfig,
  { readsValues = true, onTensor }: { readonly readsValues?: boolean; readonly onTensor?: () => void } = {},
): Promise<void> {
  const source = await openBaseWeights(directory);
  const layout = baseLayout(config);
  try {
    checkShapes(source, layout);
    if (readsValues) await checkValues(source, layout, onTensor);
  } finally {
    await source.close();
  }
}

/** Reads all tensors of a layout into a new flat vector, and closes the source. */
async function packTensors(source: WeightSource, layout: Layout): Promise<Float32Array> {
  try {
    checkShapes(source, layout);
    const flat = new Float32Array(layout.length);
    await readParameters(flat, source, layout);
    return flat;
  } finally {
    await source.close();
  }
}

/**
 * Reads the tensors of `layout` from a file into an existing flat vector, without a second copy in memory. Reads the file twice.
 *
 * @throws DataError `E_DATA` if a tensor is missing, has another shape, or contains NaN or an infinity; then the vector is unchanged.
 */
export async function readWeightsInto(flat: Float32Array, path: string, layout: Layout): Promise<void> {
  const source = await openWeights(path);
  try {
    checkShapes(source, layout);
    await checkValues(source, layout);
    await readParameters(flat, source, layout);
  } finally {
    await source.close();
  }
}

/**
 * Opens a base model's weights, to read them parameter by parameter without a copy of all of them.
 *
 * @throws DataError `E_DATA` if a tensor is missing or has another shape; the message names the tensor.
 */
export async function openParameters(
  directory: string,
  layout: Layout,
): Promise<{ readonly read: (parameter: Parameter) => Promise<Float32Array>; readonly close: () => Promise<void> }> {
  const source = await openBaseWeights(directory);
  try {
    checkShapes(source, layout);
  } catch (error) {
    await source.close();
    throw error;
  }
  const read = async (parameter: Parameter) => {
    const values = new Float32Array(parameter.size);
    await readParameter(values, source, parameter);
    return values;
  };
  return { read, close: () => source.close() };
}

/** Tensors that are read at the same time; of the four threads for files of a process, one stays free. */
const PARALLEL_READS = 3;

/**
 * Reads tensors into memory, several at a time: writing to newly allocated memory takes as long as reading the file. Ends after the first
 * error, when all reads have ended.
 *
 * @throws the error of the first tensor that cannot be read.
 */
export async function readInParallel(
  source: Pick<WeightSource, "readInto">,
  tensors: readonly (readonly [name: string, target: Float32Array])[],
  isChecked: boolean,
): Promise<void> {
  const errors = new Map<number, unknown>();
  let next = 0;
  const readRest = async () => {
    while (errors.size === 0 && next < tensors.length) {
      const index = next++;
      const [name, target] = itemAt(tensors, index);
      await source.readInto(name, target, isChecked).catch((error: unknown) => errors.set(index, error));
    }
  };
  await Promise.all(Array.from({ length: PARALLEL_READS }, readRest));
  if (errors.size > 0) throw errors.get(Math.min(...errors.keys()));
}

/** Reads all parameters of a layout into a flat vector. */
async function readParameters(flat: Float32Array, source: WeightSource, layout: Layout): Promise<void> {
  for (const parameter of layout.parameters) await readParameter(viewOf(flat, parameter), source, parameter);
}

/** Reads a parameter into its part of a flat vector. */
export async function readParameter(view: Float32Array, source: Pick<WeightSource, "readPieces">, parameter: Parameter): Promise<void> {
  for (const file of parameter.files) {
    await source.readPieces(file.name, (piece, first) => packPiece(piece, first, parameter, view, file));
  }
}

/**
 * Copies a piece of a tensor from file layout `[out, in]` to a parameter in the flat vector.
 *
 * @param first - Index of the piece's first element in the tensor.
 * @param view - The parameter in the flat vector.
 * @param file - Columns of the parameter that the tensor holds.
 */
export function packPiece(piece: Float32Array, first: number, parameter: Parameter, view: Float32Array, { start }: FileTensor): void {
  if (parameter.kind !== "matrix") return view.set(piece, start + first);
  // A row of the file is a column of the parameter.
  const [size, columns] = parameter.shape as [number, number];
  for (let i = 0; i < piece.length;) {
    const from = (first + i) % size;
    const column = start + (first + i - from) / size;
    const rows = from === 0 ? Math.min(TILE_ROWS, Math.floor((piece.length - i) / size)) : 0;
    if (rows > 0) {
      transposeRows(piece.subarray(i, i + rows * size), rows, view, { offset: column, columns });
      i += rows * size;
    } else {
      const end = Math.min(piece.length, i + size - from);
      transposeRows(piece.subarray(i, end), 1, view, { offset: from * columns + column, columns });
      i = end;
    }
  }
}

/** Number of rows that are transposed together, so that each cache line is written twice and not once per element. */
const TILE_ROWS = 8;

/** Copies rows to columns: element `[row, i]` to `view[offset + i · columns + row]`. */
function transposeRows(
  values: Float32Array,
  rows: number,
  view: Float32Array,
  { offset, columns }: { readonly offset: number; readonly columns: number },
): void {
  const size = values.length / rows;
  for (let i = 0, target = offset; i < size; i++, target += columns) {
    for (let row = 0, source = i; row < rows; row++, source += size) view[target + row] = values[source]!;
  }
}

/**
 * Returns the tensors of a flat vector in file layout: matrices as `[out, in]`, fused matrices and biases split. A matrix is transposed at
 * each access to its `data`, so a writer that accesses one tensor at a time needs memory for one.
 */
export function unpackTensors(flat: Float32Array, layout: Layout): NamedTensor[] {
  return layout.parameters.flatMap((parameter) => {
    const view = viewOf(flat, parameter);
    return parameter.files.map(({ name, start, width }): NamedTensor => {
      const shape = fileShape(parameter, width);
      if (parameter.kind === "embedding") return { name, shape, data: view };
      if (parameter.kind !== "matrix") return { name, shape, data: view.subarray(start, start + width) };
      return {
        name,
        shape,
        get data() {
          return transposedColumns(view, parameter, start, width);
        },
      };
    });
  });
}

/** Returns columns `[start, start + width)` of a matrix, transposed. */
function transposedColumns(view: Float32Array, { shape }: Parameter, start: number, width: number): Float32Array {
  const [rows, columns] = shape as [number, number];
  const data = new Float32Array(rows * width);
  for (let row = 0; row < rows; row++) {
    for (let out = 0; out < width; out++) data[out * rows + row] = view[row * columns + start + out]!;
  }
  return data;
}

/** Source of standard normal random numbers by index, from 0. */
export type Normal = (index: number) => number;

/** Returns random initial weights: factors of norms 1, biases 0, all others normal with standard deviation `initializerRange`. */
export function initialWeights(config: ModelConfig, layout: Layout, normal: Normal): Float32Array {
  const flat = new Float32Array(layout.length);
  const gain = config.hasUnitOffset ? 0 : 1;
  for (const parameter of layout.parameters) {
    const view = viewOf(flat, parameter);
    if (parameter.kind === "bias") continue;
    for (let i = 0; i < view.length; i++)
      view[i] = parameter.kind === "gain" ? gain : config.initializerRange * normal(parameter.offset + i);
  }
  return flat;
}

/** Returns initial adapter weights: `A` uniform in ±1/√in (Kaiming with a = √5, as in PEFT), `B` zero, so the adapter has no effect. */
export function initialAdapter(layout: Layout, seed: number): Float32Array {
  const key = BigInt(seed);
  const flat = new Float32Array(layout.length);
  for (const parameter of layout.parameters) {
    if (!parameter.name.endsWith("_a")) continue;
    const view = viewOf(flat, parameter);
    const bound = 1 / Math.sqrt(itemAt(parameter.shape, 0));
    for (let i = 0; i < view.length; i++) view[i] = bound * (2 * uniform(key, parameter.offset + i) - 1);
  }
  return flat;
}

/** Returns the initial weights of a seed. */
export function freshWeights(config: ModelConfig, layout: Layout, seed: number): Float32Array {
  return initialWeights(config, layout, normalFrom(BigInt(seed)));
}

/** Returns a source of standard normal numbers by index: Box-Muller over the counter-based generator. */
function normalFrom(seed: bigint): (index: number) => number {
  return (index) => Math.sqrt(-2 * Math.log(uniform(seed, index, 0))) * Math.cos(2 * Math.PI * uniform(seed, index, 1));
}
