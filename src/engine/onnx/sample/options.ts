export const DEFAULT_MAX_ROWS = 256;
export const DEFAULT_PREFIX_CACHE_BYTES = 256 * 1024 * 1024;

/** Settings of a sampler. */
export interface SamplerOptions {
  /** Threads inside one op at most. A row's bits do not depend on them: there are as many as leave them alone, one for a small model. */
  readonly threads: number;
  /** Rows that run at once; further requests wait. @default 256 */
  readonly maxRows?: number | undefined;
  /** Prompt tokens that are computed at once while no row is running. @default 2048 */
  readonly maxPrefillTokens?: number | undefined;
  /** What the prefix cache may hold; 0 = no such cache. @default 256 MiB */
  readonly prefixCacheBytes?: number | undefined;
}
