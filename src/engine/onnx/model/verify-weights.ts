/** Verification of a base model's weights against its configuration, without keeping the weights in memory. */
import type { ModelConfig } from "./config.ts";
import { baseLayout } from "./parameters.ts";
import { openBaseWeights } from "./weight-source.ts";
import { checkShapes } from "./weights.ts";

/**
 * Checks names, shapes, types, file offsets and values of all tensors. Weights that pass can be loaded.
 *
 * @param onTensor - Called after each tensor.
 * @throws UnsupportedError `E_UNSUPPORTED` if there are no weights, or for an unsupported element type.
 * @throws DataError `E_DATA` for a file that cannot be read or is truncated, and for a tensor that is missing, has another shape, or
 *   contains NaN or an infinity.
 */
export async function verifyWeights(directory: string, config: ModelConfig, onTensor: () => void = () => {}): Promise<void> {
  const source = await openBaseWeights(directory);
  const layout = baseLayout(config);
  try {
    checkShapes(source, layout);
    for (const { files } of layout.parameters) {
      for (const { name } of files) {
        await source.check(name);
        onTensor();
      }
    }
  } finally {
    await source.close();
  }
}

/** Checks names, shapes, types and file offsets of all tensors, which reads no values. Throws the errors of {@link verifyWeights}. */
export async function verifyShapes(directory: string, config: ModelConfig): Promise<void> {
  const source = await openBaseWeights(directory);
  try {
    checkShapes(source, baseLayout(config));
  } finally {
    await source.close();
  }
}
