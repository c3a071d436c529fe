/** Verification of a base model's weights against its configuration, without keeping them. */
import type { ModelConfig } from "./model/config.ts";
import { baseLayout } from "./model/parameters.ts";
import { openBaseWeights } from "./model/weight-source.ts";
import { checkShapes } from "./model/weights.ts";

/**
 * Checks names, shapes, types, places and numbers of all tensors: refuses what loading would refuse.
 *
 * @throws UnsupportedError `E_UNSUPPORTED` without weights, or for an element type that cannot be read.
 * @throws DataError `E_DATA` for a file that cannot be read or is torn, a tensor that is missing or has another shape, and for one with
 *   NaN or an infinity.
 */
export async function verifyWeights(directory: string, config: ModelConfig): Promise<void> {
  const source = await openBaseWeights(directory);
  const layout = baseLayout(config);
  try {
    checkShapes(source, layout);
    for (const { files } of layout.parameters) for (const { name } of files) await source.check(name);
  } finally {
    await source.close();
  }
}
