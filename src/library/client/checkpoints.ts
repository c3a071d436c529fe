/** The `checkpoints` resource of the client, and the checkpoint that it returns. */
import {
  checkpoint,
  checkpointList,
  deleteCheckpointsResponse,
  checkpointLineage,
  type Checkpoint as WireCheckpoint,
} from "../../base/schema/index.ts";
import { callJson, LONG_CALL_MS, type Api, type CallOptions } from "./api.ts";
import { extractTar } from "./extract.ts";
import { fromWire, parseFields, type DeletedCheckpoints } from "./wire.ts";
import { parseResponse } from "./options.ts";
import { allPages, type ListOptions } from "./pages.ts";

/** Order and number of the checkpoints that `checkpoints.list` returns. */
export interface ListCheckpointsOptions extends ListOptions {
  /** Order of the steps: ascending or descending. @default "asc" */
  readonly order?: "asc" | "desc" | undefined;
}

/** Options of {@link ModelCheckpoint.download}. */
export interface DownloadOptions extends CallOptions {
  /** Download the base model of an adapter, too, into the folder `base`. No effect for full models, which are complete. @default false */
  readonly includeBase?: boolean | undefined;
}

/** Origin of a checkpoint's weights. */
export interface Lineage {
  /** Identifier of the base model from which all training of the weights started. */
  readonly baseModel: string;
  /** Parent weights: `entity/project/name:stepN`, or the `artifact:///…` URL of an adapter; null = the base model. */
  readonly parent: string | null;
  /** Job that produced the checkpoint from its parent; null for step 0. */
  readonly jobId: string | null;
  /** Kind of that job; null for step 0. */
  readonly jobType: "rl" | "sft" | "preference" | null;
}

/**
 * Weights of a model after one training step, stored on the service.
 *
 * @example
 * ```ts
 * const checkpoint = await model.checkpoint();
 * await checkpoint.pin();
 * await checkpoint.download("exported/reverse");
 * await checkpoint.unpin();
 * ```
 */
export class ModelCheckpoint {
  /** UUID of the checkpoint. */
  readonly id: string;
  /** Step of the model: 0 at creation, one more with every successful job. */
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
  /** Size of the checkpoint's files on the service's disk in bytes; null if the service does not report it. */
  readonly bytes: number | null;
  readonly #resource: Checkpoints;
  readonly #modelId: string;

  /**
   * Creates a handle; users get checkpoints from {@link Model}.
   *
   * @internal
   */
  constructor(resource: Checkpoints, modelId: string, wire: WireCheckpoint) {
    this.#resource = resource;
    this.#modelId = modelId;
    this.id = wire.id;
    this.step = wire.step;
    this.metrics = wire.metrics;
    this.createdAt = wire.created_at ?? null;
    this.pinned = wire.pinned ?? null;
    this.bytes = wire.bytes ?? null;
    this.lineage = wire.lineage === undefined ? null : fromWire(checkpointLineage, wire.lineage);
  }

  /**
   * Downloads the checkpoint into a new or empty directory: a full model in Hugging Face layout, or an adapter in PEFT layout. A failed
   * download leaves no files. Extension.
   *
   * @param directory - Target directory; its parents are created.
   * @param options - Whether to include an adapter's base model, signal and time limit.
   * @throws ArgumentError `E_ARGUMENT` if the directory contains files.
   * @throws HttpError `E_HTTP` for an error status.
   * @throws ConnectionError `E_CONNECTION` if the download is cut.
   * @throws DataError `E_DATA` if the archive is invalid or contains a path outside `directory`.
   */
  download(directory: string, options: DownloadOptions = {}): Promise<void> {
    return this.#resource.download(this.#modelId, this.step, directory, options);
  }

  /**
   * Pins the checkpoint: the service keeps it, and its optimizer state if that still exists, regardless of its checkpoint budget.
   * Extension.
   *
   * @param options - Signal and time limit.
   * @returns the updated checkpoint.
   * @throws HttpError `E_HTTP` for an error status.
   * @throws ConnectionError `E_CONNECTION` without a complete response; ProtocolError `E_PROTOCOL` for an invalid response.
   */
  pin(options: CallOptions = {}): Promise<ModelCheckpoint> {
    return this.#resource.pin(this.#modelId, this.step, options);
  }

  /**
   * Removes the pin: the checkpoint budget applies to the checkpoint again. Extension.
   *
   * @param options - Signal and time limit.
   * @returns the updated checkpoint.
   * @throws HttpError `E_HTTP` for an error status.
   * @throws ConnectionError `E_CONNECTION` without a complete response; ProtocolError `E_PROTOCOL` for an invalid response.
   */
  unpin(options: CallOptions = {}): Promise<ModelCheckpoint> {
    return this.#resource.unpin(this.#modelId, this.step, options);
  }
}

/**
 * The `checkpoints` resource of a {@link Service}; `model.checkpoints` and {@link ModelCheckpoint} are the high-level equivalents.
 *
 * @example
 * ```ts
 * const [newest] = await service.checkpoints.list(model.id, { order: "desc", max: 1 });
 * const checkpoint = await service.checkpoints.get(model.id, "latest");
 * await service.checkpoints.pin(model.id, 3);
 * await service.checkpoints.unpin(model.id, 3);
 * await service.checkpoints.download(model.id, "latest", "exported/reverse");
 * const { notFoundSteps } = await service.checkpoints.delete(model.id, [1, 2]);
 * ```
 */
export interface Checkpoints {
  /**
   * Lists the checkpoints of a model, fetching all pages.
   *
   * @param modelId - ID of the model.
   * @param options - Order, number, signal and time limit.
   * @returns the checkpoints, by default all of them, oldest first.
   * @throws HttpError `E_HTTP` for an error status.
   * @throws ConnectionError `E_CONNECTION` without a complete response; ProtocolError `E_PROTOCOL` for an invalid response.
   */
  list(modelId: string, options?: ListCheckpointsOptions): Promise<ModelCheckpoint[]>;
  /**
   * Returns one checkpoint. Extension.
   *
   * @param modelId - ID of the model.
   * @param step - Step of the checkpoint.
   * @param options - Signal and time limit.
   * @returns the checkpoint with metrics and lineage.
   * @throws HttpError `E_HTTP` for an error status, 404 if there is no such checkpoint.
   * @throws ConnectionError `E_CONNECTION` without a complete response; ProtocolError `E_PROTOCOL` for an invalid response.
   */
  get(modelId: string, step: number | "latest", options?: CallOptions): Promise<ModelCheckpoint>;
  /**
   * Downloads a checkpoint, see {@link ModelCheckpoint.download}. Extension.
   *
   * @param modelId - ID of the model.
   * @param step - Step of the checkpoint.
   * @param directory - Target directory, new or empty; its parents are created.
   * @param options - Whether to include an adapter's base model, signal and time limit.
   * @throws ArgumentError `E_ARGUMENT` if the directory contains files.
   * @throws HttpError `E_HTTP` for an error status; ConnectionError `E_CONNECTION` if the download is cut.
   * @throws DataError `E_DATA` if the archive is invalid or contains a path outside `directory`.
   */
  download(modelId: string, step: number | "latest", directory: string, options?: DownloadOptions): Promise<void>;
  /**
   * Pins a checkpoint, see {@link ModelCheckpoint.pin}. Extension.
   *
   * @param modelId - ID of the model.
   * @param step - Step of the checkpoint.
   * @param options - Signal and time limit.
   * @returns the updated checkpoint.
   * @throws HttpError `E_HTTP` for an error status.
   * @throws ConnectionError `E_CONNECTION` without a complete response; ProtocolError `E_PROTOCOL` for an invalid response.
   */
  pin(modelId: string, step: number | "latest", options?: CallOptions): Promise<ModelCheckpoint>;
  /**
   * Removes a pin, see {@link ModelCheckpoint.unpin}. Extension.
   *
   * @param modelId - ID of the model.
   * @param step - Step of the checkpoint.
   * @param options - Signal and time limit.
   * @returns the updated checkpoint.
   * @throws HttpError `E_HTTP` for an error status.
   * @throws ConnectionError `E_CONNECTION` without a complete response; ProtocolError `E_PROTOCOL` for an invalid response.
   */
  unpin(modelId: string, step: number | "latest", options?: CallOptions): Promise<ModelCheckpoint>;
  /**
   * Deletes checkpoints by step. Unknown steps are not an error.
   *
   * @param modelId - ID of the model.
   * @param steps - Steps of the checkpoints to delete.
   * @param options - Signal and time limit.
   * @returns the number of deleted checkpoints, and the unknown steps.
   * @throws HttpError `E_HTTP` for an error status.
   * @throws ConnectionError `E_CONNECTION` without a complete response; ProtocolError `E_PROTOCOL` for an invalid response.
   */
  delete(modelId: string, steps: readonly number[], options?: CallOptions): Promise<DeletedCheckpoints>;
}

/** Creates the `checkpoints` resource of a connection. */
export function checkpointsResource(api: Api): Checkpoints {
  const path = (modelId: string) => `/v1/preview/models/${encodeURIComponent(modelId)}/checkpoints`;
  const toCheckpoint = (modelId: string, answer: unknown) =>
    new ModelCheckpoint(resource, modelId, parseResponse(checkpoint, answer, "checkpoint"));
  const resource: Checkpoints = {
    async list(modelId, { order = "asc", ...options } = {}) {
      const checkpoints = await allPages(
        api,
        path(modelId),
        { schema: checkpointList, query: { order }, itemsName: "checkpoints" },
        options,
      );
      return checkpoints.map((wire) => new ModelCheckpoint(resource, modelId, wire));
    },
    get: async (modelId, step, options = {}) => toCheckpoint(modelId, await callJson(api, "GET", `${path(modelId)}/${step}`, options)),
    download: (modelId, step, directory, { includeBase = false, ...options } = {}) => {
      const headers = { accept: "application/x-tar" };
      // The parameter is sent only if needed: a service that does not know it may reject it.
      const query = includeBase ? { query: { include: "base" } } : {};
      const url = `${api.baseUrl}${path(modelId)}/${step}/archive`;
      // The service may have to write the files of a new adapter before it sends the first byte.
      return extractTar(api.transport.stream("GET", url, { ...options, ...query, headers, headersTimeoutMs: LONG_CALL_MS }), directory);
    },
    pin: async (modelId, step, options = {}) => toCheckpoint(modelId, await callJson(api, "PUT", `${path(modelId)}/${step}/pin`, options)),
    unpin: async (modelId, step, options = {}) =>
      toCheckpoint(modelId, await callJson(api, "DELETE", `${path(modelId)}/${step}/pin`, options)),
    async delete(modelId, steps, options = {}) {
      const answer = await callJson(api, "DELETE", path(modelId), { ...options, json: { steps } });
      return parseFields(deleteCheckpointsResponse, answer, "answer to a deletion of checkpoints");
    },
  };
  return resource;
}
