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
  /** Order by step. @default "asc" */
  readonly order?: "asc" | "desc" | undefined;
  /** Max number of checkpoints to return. @default all */
  readonly max?: number | undefined;
}

/** Origin of a checkpoint's weights. */
export interface Lineage {
  readonly baseModel: string;
  /** Parent weights: `entity/project/name:stepN`, or the `artifact:///…` URL of an adapter; null = the base model. */
  readonly parent: string | null;
  /** Job that produced the checkpoint from its parent; null for step 0. */
  readonly jobId: string | null;
  readonly jobType: "rl" | "sft" | null;
}

/** A checkpoint of a model on the service. */
export class ModelCheckpoint {
  readonly id: string;
  readonly step: number;
  /** Metrics of the checkpoint, under the service's names. */
  readonly metrics: Readonly<Record<string, number>>;
  /** Creation time, ISO 8601; null if the service does not report it. */
  readonly createdAt: string | null;
  /**
   * Whether the checkpoint and its optimizer state are exempt from the service's checkpoint budget; null if the service does not report it.
   */
  readonly pinned: boolean | null;
  /** Origin of the weights; null if the service does not report it. */
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
   * Downloads the checkpoint into a new or empty directory: a full model in Hugging Face layout, or an adapter in PEFT layout. A failed
   * download leaves no files. Extension.
   *
   * @param directory - Target directory; its parents are created.
   * @throws ArgumentError `E_ARGUMENT` if the directory contains files.
   * @throws HttpError `E_HTTP` for an error status.
   * @throws ConnectionError `E_CONNECTION` if the download is cut.
   * @throws DataError `E_DATA` if the archive is invalid or contains a path outside `directory`.
   * @example
   * ```ts
   * const checkpoint = await model.checkpoint();
   * await checkpoint.download("exported/reverse");
   * ```
   */
  download(directory: string, options: CallOptions = {}): Promise<void> {
    return this.#resource.download(this.#modelId, this.step, directory, options);
  }

  /**
   * Pins the checkpoint: the service keeps it, and its optimizer state if that still exists, regardless of its checkpoint budget.
   * Extension.
   *
   * @returns the updated checkpoint.
   * @throws HttpError `E_HTTP` for an error status.
   */
  pin(options: CallOptions = {}): Promise<ModelCheckpoint> {
    return this.#resource.pin(this.#modelId, this.step, options);
  }

  /**
   * Removes the pin. Extension.
   *
   * @returns the updated checkpoint.
   * @throws HttpError `E_HTTP` for an error status.
   */
  unpin(options: CallOptions = {}): Promise<ModelCheckpoint> {
    return this.#resource.unpin(this.#modelId, this.step, options);
  }
}

/** The `checkpoints` resource. */
export interface Checkpoints {
  /** Lists the checkpoints of a model, fetching all pages. */
  list(modelId: string, options?: ListCheckpointsOptions): Promise<ModelCheckpoint[]>;
  /** Returns one checkpoint. Extension. */
  get(modelId: string, step: number | "latest", options?: CallOptions): Promise<ModelCheckpoint>;
  /** Downloads a checkpoint, see {@link ModelCheckpoint.download}. Extension. */
  download(modelId: string, step: number | "latest", directory: string, options?: CallOptions): Promise<void>;
  /** Pins a checkpoint, see {@link ModelCheckpoint.pin}. Extension. */
  pin(modelId: string, step: number | "latest", options?: CallOptions): Promise<ModelCheckpoint>;
  /** Removes a pin, see {@link ModelCheckpoint.unpin}. Extension. */
  unpin(modelId: string, step: number | "latest", options?: CallOptions): Promise<ModelCheckpoint>;
  /** Deletes checkpoints by step. Unknown steps are not an error; the result lists them in `notFoundSteps`. */
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
      // The service may have to create a fresh adapter before it sends the first byte.
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
