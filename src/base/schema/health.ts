/** Schemas of `GET /health`, `GET /ready` and `GET /version`. */

import { z } from "zod";

/** State of one worker of the service's engine. */
export const workerHealth = z.object({
  /** Name, such as `sampler-0` or `trainer`. */
  name: z.string(),
  /** `restarting`: the worker died, and its replacement has not started yet. */
  state: z.literal(["running", "restarting"]),
  /** Replacements since the service started. */
  restarts: z.number().int(),
  /** Milliseconds until the replacement starts; 0 while running. */
  restarts_in_ms: z.number(),
});

/** Device of the service's engine. */
export const deviceHealth = z.object({
  /** `cpu`: the processor. `webgpu`: a GPU through WebGPU. */
  name: z.string(),
  /** Name of the GPU as its driver reports it; null for the processor, and where the system does not say. */
  adapter: z.string().nullable(),
  /** Type in which weights that are not trained are stored. */
  weight_precision: z.literal(["float32", "float16", "int8", "int4"]),
  /** Number format of the products with weights when large models are sampled; `int8` only on the processor. */
  rollout_precision: z.literal(["float32", "int8"]),
});

/** State of the file system that holds the service's data. */
export const storageHealth = z.object({
  /** `low`: less than `minFreeBytes` is free; uploads, new models and new jobs are rejected, and queued jobs wait. */
  state: z.literal(["ok", "low"]),
  /** Explanation of `low` with the remedy; null while `ok`. */
  message: z.string().nullable(),
});

/** Schema of {@link HealthReport}. */
export const healthReport = z.object({
  /**
   * `degraded`: a worker is being restarted, or disk space is low. `unavailable`, with status 503: sampling is not possible at the moment.
   */
  status: z.literal(["ok", "degraded", "unavailable"]),
  /** Workers of the engine; empty for an engine without workers. */
  workers: z.array(workerHealth),
  /** Devices that models are trained and sampled on; empty for an engine that does not report them. */
  devices: z.array(deviceHealth),
  /** Free space of the data directory. */
  storage: storageHealth,
});
/** Answer of `GET /health`. @interface */
export type HealthReport = z.infer<typeof healthReport>;

/** State of one part of the service. */
export const partState = z.object({
  /** `degraded`: with restrictions, such as low disk space. `unavailable`: the service is not ready. */
  status: z.literal(["ok", "degraded", "unavailable"]),
  /** Explanation of the other states; null while `ok`. */
  message: z.string().nullable(),
});

/** Schema of {@link ReadyReport}. */
export const readyReport = z.object({
  /** `unavailable`, with status 503: a part does not work, and requests should be sent elsewhere. */
  status: z.literal(["ready", "unavailable"]),
  /** States of the parts, for a request with a key; absent without one. */
  parts: z
    .object({
      /** Sampling of models. */
      engine: partState,
      /** Database. */
      database: partState,
      /** Files of checkpoints and artifacts. */
      storage: partState,
      /** Free disk space. Low space is `degraded`: the service still samples, reads and deletes. */
      disk: partState,
    })
    .optional(),
});
/** Answer of `GET /ready`. @interface */
export type ReadyReport = z.infer<typeof readyReport>;

/** Schema of {@link ServiceVersion}. */
export const serviceVersion = z.object({
  /** Version of the package. */
  version: z.string(),
});
/** Answer of `GET /version`. @interface */
export type ServiceVersion = z.infer<typeof serviceVersion>;
