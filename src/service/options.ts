/** Options of `startService`. */
import type { DeviceChoice, Engine, RolloutPrecision, WeightPrecision } from "../engine/port.ts";
import type { UpstreamOptions } from "../engine/upstream/upstream.ts";
import type { RequestRecord } from "./observability/observer.ts";
import type { ChatLimits } from "./chat/generate/admit.ts";
import type { ServiceLimits } from "./common/limits.ts";
import type { ServiceLogger } from "./common/logger.ts";
import type { HubOptions } from "./hub/hub.ts";
import type { OperationOptions } from "./operation-options.ts";

/** Options of `startService`: address, data directory, database and storage, engine, limits and hooks. Every option has a default. */
export interface ServiceOptions extends OperationOptions {
  /** Address to listen on. Any address other than loopback requires an explicit API key. @default "127.0.0.1" */
  readonly host?: string | undefined;
  /** Port to listen on; 0 = any free port. @default 0 */
  readonly port?: number | undefined;
  /** Data directory of the service. @default `WHETSTONE_HOME`, or `.whetstone` in the working directory */
  readonly dataDir?: string | undefined;
  /**
   * S3 storage of checkpoints, artifacts and job files: `s3://<bucket>/<prefix>`, optionally with
   * `?endpoint=<URL of the server>&region=<name>`. Credentials come from `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY` and
   * `AWS_SESSION_TOKEN`. The data directory then has the database, and copies of the files that were used last. The database
   * records the storage, so later starts may leave it out.
   *
   * @default `WHETSTONE_STORAGE`, or the storage that the database records; for a new database the data directory
   */
  readonly storage?: string | undefined;
  /**
   * Address of a Postgres database (version 13 or newer) for the service's records, of the form
   * `postgres://user:password@host:5432/database`. The parameter `schema` names the schema of its tables, which is created if it is
   * missing. Needs the package `pg`. Files of checkpoints, jobs and artifacts stay in the data directory.
   *
   * @default `WHETSTONE_DATABASE`, or the SQLite file `whetstone.db` in the data directory
   */
  readonly database?: string | undefined;
  /**
   * API key that clients must send.
   *
   * @default `WHETSTONE_API_KEY`, or on loopback a key created at the first start and stored in the data directory
   */
  readonly apiKey?: string | undefined;
  /**
   * Engine for sampling and training. The service closes it on shutdown. Excludes the options of the embedded engine: `baseModels`,
   * `allowedBaseRoots`, `hub` (except null), `samplers`, `samplerThreads`, `trainerThreads`, `device`, `deviceMemory`,
   * `weightPrecision` and `rolloutPrecision`.
   *
   * @default the embedded engine
   */
  readonly engine?: Engine | undefined;
  /**
   * OpenAI-compatible server, such as vLLM, that samples the base models it serves instead of the engine. With `adapters`, it also samples
   * models trained on them.
   *
   * @default none: the engine samples everything
   */
  readonly upstream?: UpstreamOptions | undefined;
  /**
   * Additional base models of the embedded engine by identifier: the path of a directory in Hugging Face layout or of a GGUF file,
   * `hf:<owner>/<name>[@revision]`, or `ollama:<name>[:tag]`. Checked at the start, except models of the hub, which are fetched when they
   * are first used.
   *
   * @default none
   */
  readonly baseModels?: Readonly<Record<string, string>> | undefined;
  /**
   * Directories that may contain a `base_model` given as a path. `"any"` allows every path that the user of this process can read, and
   * requires a host on loopback, because every holder of the API key can read these files.
   *
   * @default none
   */
  readonly allowedBaseRoots?: readonly string[] | "any" | undefined;
  /**
   * Model hub from which the embedded engine fetches a `base_model` of the form `hf:owner/name` or `owner/name`, with an optional
   * `@revision`; null = fetch nothing.
   *
   * @default huggingface.co, cached in the data directory
   */
  readonly hub?: HubOptions | null | undefined;
  /**
   * Directories in which the dashboard at `/ui/` finds run directories, at most four levels deep. Directories may be missing.
   *
   * @default ["runs"], in the working directory
   */
  readonly runs?: readonly string[] | undefined;
  /** Number of sampler threads of the embedded engine. @default the engine's */
  readonly samplers?: number | undefined;
  /** Number of threads per operation in each sampler. @default the engine's */
  readonly samplerThreads?: number | undefined;
  /** Number of threads of the embedded engine's trainer. @default the fastest, measured during the first steps */
  readonly trainerThreads?: number | undefined;
  /**
   * Device on which the embedded engine trains and samples: the processor; a GPU through WebGPU; or `"auto"`, the GPU for models of more
   * than 16 M weights if there is a hardware GPU.
   *
   * @default `WHETSTONE_DEVICE`, or "cpu"
   */
  readonly device?: DeviceChoice | undefined;
  /**
   * Memory of the GPU in bytes, from 1 GB, which WebGPU does not report: with more, training recomputes fewer layers of large models,
   * more requests run at once, and the prefix cache, an eighth of it, keeps more prompts. An error with the device "cpu".
   *
   * @default `WHETSTONE_DEVICE_MEMORY`, or 8 GB
   */
  readonly deviceMemory?: number | undefined;
  /**
   * Type in which weights that are not trained are stored: matrices, embeddings and output heads of base models. "float16", on a GPU alone,
   * takes half the memory and needs an adapter with the WebGPU feature shader-f16. "int4" and "int8", on the processor alone, are blocks of
   * 32 weights with a scale each, some 0.63 and 1.13 bytes per weight; GGUF files in Q4_0, Q4_1, Q4_K and (int8) Q8_0 keep their values,
   * others are rounded. An error with a device that does not have the type.
   *
   * @default `WHETSTONE_WEIGHT_PRECISION`, or "float32"
   */
  readonly weightPrecision?: WeightPrecision | undefined;
  /**
   * Number format of the products with weights when the processor samples from models of more than 16 M weights, or from base models in
   * int4 or int8. "int8" samples few requests faster, from slightly different distributions. The recorded log-probabilities belong to these
   * distributions, and RL jobs correct the difference by importance ratios. An error with another device than "cpu".
   *
   * @default `WHETSTONE_ROLLOUT_PRECISION`, or "float32"
   */
  readonly rolloutPrecision?: RolloutPrecision | undefined;
  /** Limits of the service and of chat requests. A property that is absent or undefined has the default stated at its declaration. */
  readonly limits?:
    | Partial<
        ServiceLimits & {
          /** Limits of chat requests. */
          readonly chat: ChatLimits;
        }
      >
    | undefined;
  /** Logger of the service. @default warnings and errors to standard error */
  readonly logger?: ServiceLogger | undefined;
  /** Called after each request. @default nothing */
  readonly onRequest?: ((record: RequestRecord) => void) | undefined;
}
