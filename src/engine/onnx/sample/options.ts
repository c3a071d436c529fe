/** Settings of a sampler, and their defaults. */
import type { ProcessorPrecision, RolloutPrecision } from "../../engine-info.ts";
import { DEFAULT_DEVICE_MEMORY } from "../runtime/device-memory.ts";

/** Default of {@link SamplerSettings.maxRows}. */
export const DEFAULT_MAX_ROWS = 256;
/** Default of {@link SamplerSettings.prefixCacheBytes}. */
export const DEFAULT_PREFIX_CACHE_BYTES = 256 * 1024 * 1024;

/** Returns the default of {@link SamplerSettings.prefixCacheBytes} on a device: an eighth of its memory. */
export function devicePrefixCacheBytes(memoryBytes = DEFAULT_DEVICE_MEMORY): number {
  return memoryBytes / 8;
}

/** Settings of a sampler. */
export interface SamplerSettings {
  /**
   * Max threads inside one op. A row's bits do not depend on the threads: each graph uses only as many as leave the bits unchanged, one for
   * a small model.
   */
  readonly threads: number;
  /** Type in which the processor stores base models. @default "float32" */
  readonly weightPrecision?: ProcessorPrecision | undefined;
  /** Number format of the decode graphs of large models, and of models in 4 or 8 bits, on the processor. @default "float32" */
  readonly rolloutPrecision?: RolloutPrecision | undefined;
  /** Max rows that run at once; further requests wait. @default 256 */
  readonly maxRows?: number | undefined;
  /** Max prompt tokens computed at once while no row is running. @default 2048 */
  readonly maxPrefillTokens?: number | undefined;
  /** Max bytes of the prefix cache; 0 disables the cache. @default 256 MiB; on a device, {@link devicePrefixCacheBytes} */
  readonly prefixCacheBytes?: number | undefined;
}
