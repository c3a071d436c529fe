import {
  checkpoint,
  checkpointList,
  deleteCheckpointsResponse,
  type Checkpoint as WireCheckpoint,
  type CheckpointLineage,
} from "../schema/index.ts";
import { callJson, LONG_CALL_MS, type Api, type CallOptions } from "./api.ts";
import { ProtocolError } from "./errors.ts";
import { extractTar } from "./extract.ts";
import { deletedCheckpointsFromWire, parseAnswer, type DeletedCheckpoints } from "./wire.ts";

/** Options of `checkpoints.list`. */
export interface ListCheckpointsOptions extends CallOptions {
  /** By step. @default "asc" */
  readonly order?: "asc" | "desc" | undefined;
  /** At most this many. @default all */
  readonly max?: number | undefined;
}

/** Where a checkpoint's weights come from. */
export interface Lineage {
  readonly baseModel: string;
  /** `entity/project/name:stepN`, or the `artifact:///…` of an adapter; null = the base itself. */
  readonly parent: string | null;
  /** The job that made it of its parent; null for step 0. */
  readonly jobId: string | null;
  readonly jobType: "rl" | "sft" | null;
}

/** A checkpoint of a model on the service. */
export class ModelCheckpoint {
  readonly id: string;
  readonly step: number;
  /** The names are the service's. */
  readonly metrics: Readonly<Record<string, number>>;
  /** ISO 8601; null if the service does not say. */
  readonly createdAt: string | null;
  /** Whether it is kept with its optimizer state, whatever the service's budget; null if the service does not say. */
  readonly pinned: boolean | null;
  /** null if the service does not say. */
  readonly lineage: Lineage | null;
  readonly #resource: Checkpoints;
  readonly #modelId: string;

  constructor(resource: Checkpoints, modelId: string, wire: WireCheckpoint) {
    this.#resource = resource;
    this.#modelId = modelId;
    this.id = wire.id;
    this.step = wire.step;
    this.metrics = wire.metrics;
    this.createdAt = wire.created_at ?? null;
    this.pinned = wire.pinned ?? null;
    this.lineage = wire.lineage === undefined ? null : lineageFromWire(wire.lineage);
  }

  /**
   * Downloads it into a directory that is new or empty: a whole model in Hugging Face layout, or an adapter in PEFT's. Extension.
   *
   * @throws ArgumentError `E_ARGUMENT` when the directory holds files; HttpError `E_HTTP`; ConnectionError `E_CONNECTION` when the
   *   download is cut; DataError `E_DATA` for an archive that would write anywhere else. Nothing is left of a download that failed.
   * @example
   * ```ts
   * const checkpoint = await model.checkpoint();
   * await checkpoint.download("exported/reverse");
   * ```
   */
  download(directory: string, options: CallOptions = {}): Promise<void> {
    return this.#resource.download(this.#modelId, this.step, directory, options);
  }

  /** Keeps it with its optimizer state (if that is still there), whatever the service's budget. Extension. */
  pin(options: CallOptions = {}): Promise<ModelCheckpoint> {
    return this.#resource.pin(this.#modelId, this.step, options);
  }

  /** Takes a pin back. Extension. */
  unpin(options: CallOptions = {}): Promise<ModelCheckpoint> {
    return this.#resource.unpin(this.#modelId, this.step, options);
  }
}

/** The `checkpoints` resource. */
export interface Checkpoints {
  /** All checkpoints of a model, page by page behind the scenes. */
  list(modelId: string, options?: ListCheckpointsOptions): Promise<ModelCheckpoint[]>;
  /** Extension: one checkpoint. */
  get(modelId: string, step: number | "latest", options?: CallOptions): Promise<ModelCheckpoint>;
  /** Extension: see {@link ModelCheckpoint.download}. */
  download(modelId: string, step: number | "latest", directory: string, options?: CallOptions): Promise<void>;
  /** Extension: see {@link ModelCheckpoint.pin}. */
  pin(modelId: string, step: number | "latest", options?: CallOptions): Promise<ModelCheckpoint>;
  /** Extension: see {@link ModelCheckpoint.unpin}. */
  unpin(modelId: string, step: number | "latest", options?: CallOptions): Promise<ModelCheckpoint>;
  /** Deletes checkpoints by step. Unknown steps are no error, they are reported. */
  delete(modelId: string, steps: readonly number[], options?: CallOptions): Promise<DeletedCheckpoints>;
}

const PAGE = 100;

export function checkpointsResource(api: Api): Checkpoints {
  const path = (modelId: string) => `/v1/preview/models/${encodeURIComponent(modelId)}/checkpoints`;
  const one = (modelId: string, answer: unknown) => new ModelCheckpoint(resource, modelId, parseAnswer(checkpoint, answer, "checkpoint"));
  const resource: Checkpoints = {
    async list(modelId, { order = "asc", max = Number.POSITIVE_INFINITY, ...options } = {}) {
      const all: ModelCheckpoint[] = [];
      let after: string | undefined;
      while (all.length < max) {
        const query = { after, limit: Math.min(PAGE, max - all.length), order };
        const page = parseAnswer(checkpointList, await callJson(api, "GET", path(modelId), { ...options, query }), "list of checkpoints");
        all.push(...page.data.map((wire) => new ModelCheckpoint(resource, modelId, wire)));
        if (!page.has_more) break;
        const last = page.last_id ?? page.data.at(-1)?.id;
        if (last === undefined || last === after)
          throw new ProtocolError("The service says there are more checkpoints but its page has no new last id");
        after = last;
      }
      return all;
    },
    get: async (modelId, step, options = {}) => one(modelId, await callJson(api, "GET", `${path(modelId)}/${step}`, options)),
    download: (modelId, step, directory, options = {}) => {
      const headers = { accept: "application/x-tar" };
      const url = `${api.baseUrl}${path(modelId)}/${step}/archive`;
      // A fresh adapter is made before the first byte is sent.
      return extractTar(api.transport.stream("GET", url, { ...options, headers, headersTimeoutMs: LONG_CALL_MS }), directory);
    },
    pin: async (modelId, step, options = {}) => one(modelId, await callJson(api, "PUT", `${path(modelId)}/${step}/pin`, options)),
    unpin: async (modelId, step, options = {}) => one(modelId, await callJson(api, "DELETE", `${path(modelId)}/${step}/pin`, options)),
    async delete(modelId, steps, options = {}) {
      const answer = await callJson(api, "DELETE", path(modelId), { ...options, json: { steps } });
      return deletedCheckpointsFromWire(parseAnswer(deleteCheckpointsResponse, answer, "answer to a deletion of checkpoints"));
    },
  };
  return resource;
}

function lineageFromWire({ base_model: baseModel, parent, job_id: jobId, job_type: jobType }: CheckpointLineage): Lineage {
  return { baseModel, parent, jobId, jobType };
}
