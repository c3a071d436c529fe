/** Weights to export: tensors of a model directory, with an adapter merged into them. */
import { itemAt } from "../base/util/values.ts";
import { type ModelConfig, readModelConfig } from "../engine/onnx/model/config.ts";
import { type Adapter, baseLayout, fileShape } from "../engine/onnx/model/parameters.ts";
import { openBaseWeights } from "../engine/onnx/model/weight-source.ts";
import { checkShapes } from "../engine/onnx/model/weights.ts";
import { type AdapterWeights, openAdapterWeights } from "./adapter-weights.ts";

/** Name and shape of a tensor to export, as in Hugging Face layout. */
export interface TensorShape {
  readonly name: string;
  readonly shape: readonly number[];
}

/** Open weights of a whole model; tensors are read one at a time, which limits memory to one tensor and one row of sums. */
export interface MergedWeights {
  readonly config: ModelConfig;
  readonly tensors: readonly TensorShape[];
  /** Reads a tensor as float32, row-major, with the adapter merged into it. */
  read(name: string): Promise<Float32Array>;
  close(): Promise<void>;
}

/**
 * Opens the weights of a model directory, optionally with an adapter.
 *
 * @param base - Directory in Hugging Face layout.
 * @param adapter - Directory in PEFT layout; null for none.
 * @throws DataError `E_DATA` for files that cannot be read, and for tensors that are missing or do not fit the configuration.
 * @throws UnsupportedError `E_UNSUPPORTED` for another architecture, element type or kind of adapter.
 */
export async function openMergedWeights(base: string, adapter: string | null): Promise<MergedWeights> {
  const config = await readModelConfig(base);
  const layout = baseLayout(config);
  const source = await openBaseWeights(base);
  let adapterWeights: AdapterWeights | null = null;
  try {
    checkShapes(source, layout);
    adapterWeights = adapter === null ? null : await openAdapterWeights(adapter, config);
  } catch (error) {
    await source.close();
    throw error;
  }
  return {
    config,
    tensors: layout.parameters.flatMap((parameter) =>
      parameter.files.map(({ name, width }) => ({ name, shape: fileShape(parameter, width) })),
    ),
    async read(name) {
      const weights = await source.read(name);
      if (adapterWeights?.targets.has(name)) {
        const [a, b] = [await adapterWeights.read(name, "A"), await adapterWeights.read(name, "B")];
        mergeAdapter(weights, { a, b, rank: adapterWeights.rank, alpha: adapterWeights.alpha });
      }
      return weights;
    },
    async close() {
      await Promise.all([source.close(), adapterWeights?.close()]);
    },
  };
}

/**
 * Adds an adapter to a matrix in place: `W ← W + (alpha / rank) · B·A`.
 *
 * The sum of an element is computed in float64, over the rank in order, and rounded once to float32.
 *
 * @param weights - `W`, shape `[out, in]`.
 * @param adapter - `A`, shape `[rank, in]`; `B`, shape `[out, rank]`; rank and alpha.
 */
function mergeAdapter(
  weights: Float32Array,
  { a, b, rank, alpha }: Adapter & { readonly a: Float32Array; readonly b: Float32Array },
): void {
  const [width, height] = [a.length / rank, b.length / rank];
  const scale = alpha / rank;
  const sums = new Float64Array(width);
  for (let out = 0; out < height; out++) {
    sums.fill(0);
    for (let r = 0; r < rank; r++) {
      const factor = itemAt(b, out * rank + r);
      for (let i = 0; i < width; i++) sums[i]! += factor * a[r * width + i]!;
    }
    for (let i = 0; i < width; i++) weights[out * width + i]! += scale * sums[i]!;
  }
}
