/** Whether a base's weights are those that its configuration asks for, told from the headers alone. */
import type { ModelConfig } from "./model/config.ts";
import { baseLayout } from "./model/parameters.ts";
import { openBaseWeights } from "./model/weight-source.ts";
import { checkShapes } from "./model/weights.ts";

/**
 * Checks names, shapes, types and places of all tensors, not their numbers: what loading would refuse is refused here.
 *
 * @throws UnsupportedError `E_UNSUPPORTED` without weights, or for an element type that cannot be read.
 * @throws DataError `E_DATA` for a file that cannot be read or is torn, or a tensor that is missing or has another shape.
 */
export async function verifyWeights(directory: string, config: ModelConfig): Promise<void> {
  const source = await openBaseWeights(directory);
  try {
    checkShapes(source, baseLayout(config));
  } finally {
    await source.close();
  }
}
