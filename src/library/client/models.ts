/** The `models` resource of the client: creates, lists and deletes trainable models, and lists the served ones. */
import { randomUUID } from "node:crypto";
import {
  createModelRequest,
  deleteModelResponse,
  model,
  modelList,
  modelSummary,
  servedModel,
  servedModelList,
} from "../../base/schema/index.ts";
import { callCreate, callJson, LONG_CALL_MS, type Api, type CallOptions, type CreateOptions } from "./api.ts";
import { Model } from "./model.ts";
import type { Service } from "./service.ts";
import { fromWire, parseFields, toWire, type CreateModelOptions, type DeletedModel, type ModelSummary, type ServedModel } from "./wire.ts";
import { optionNames, withOptionNames } from "./option-names.ts";
import { parseResponse } from "./options.ts";
import { allPages, type ListOptions } from "./pages.ts";

/** Filters and number of the models that `models.listTrainable` returns. */
export interface ListModelsOptions extends ListOptions {
  /** Only models of this entity. @default all */
  readonly entity?: string | undefined;
  /** Only models of this project. @default all */
  readonly project?: string | undefined;
  /** Only models of this name. @default all */
  readonly name?: string | undefined;
}

/**
 * The `models` resource of a {@link Service}.
 *
 * @example
 * ```ts
 * const model = await service.models.create({ project: "demo", name: "reverse", baseModel: "whetstone-tiny" });
 * for (const { id, parent } of await service.models.list()) console.log(id, parent ?? "base model");
 * const [newest] = await service.models.listTrainable({ project: "demo", max: 1 });
 * const { deletedCheckpoints } = await service.models.delete(model.id);
 * ```
 */
export interface Models {
  /**
   * Creates a trainable model, or with `returnExisting` returns the existing model of this name.
   *
   * @param options - Name and base model; optionally adapter, initial weights, signal, time limit and idempotency key.
   * @returns the model; a new one has the checkpoint of step 0.
   * @throws HttpError `E_HTTP` for an error status, 409 if the name is taken.
   * @throws ConnectionError `E_CONNECTION` without a complete response; ProtocolError `E_PROTOCOL` for an invalid response.
   */
  create(options: CreateModelOptions & CreateOptions): Promise<Model>;
  /**
   * Cancels the model's unfinished jobs, then deletes the model with its checkpoints. Artifacts and job records stay.
   *
   * @param modelId - ID of the model.
   * @param options - Signal and time limit.
   * @returns the number of deleted checkpoints.
   * @throws HttpError `E_HTTP` for an error status.
   * @throws ConnectionError `E_CONNECTION` without a complete response; ProtocolError `E_PROTOCOL` for an invalid response.
   */
  delete(modelId: string, options?: CallOptions): Promise<DeletedModel>;
  /**
   * Lists the served models.
   *
   * @param options - Signal and time limit.
   * @returns base models first, then trainable models.
   * @throws HttpError `E_HTTP` for an error status.
   * @throws ConnectionError `E_CONNECTION` without a complete response; ProtocolError `E_PROTOCOL` for an invalid response.
   */
  list(options?: CallOptions): Promise<ServedModel[]>;
  /**
   * Lists the trainable models with the number and size of their checkpoints, fetching all pages. Extension.
   *
   * @param options - Filters, number, signal and time limit.
   * @returns the models, newest first.
   * @throws HttpError `E_HTTP` for an error status, 404 or 405 if the service lacks this extension.
   * @throws ConnectionError `E_CONNECTION` without a complete response; ProtocolError `E_PROTOCOL` for an invalid response.
   */
  listTrainable(options?: ListModelsOptions): Promise<ModelSummary[]>;
}

/** Schema of the wire fields of {@link ServedModel}. */
const servedFields = servedModel.omit({ object: true, permission: true });

/** Creates the `models` resource of a connection; its models belong to `service`. */
export function modelsResource(api: Api, service: Service): Models {
  return {
    async create({ signal, timeoutMs, idempotencyKey = randomUUID(), ...settings }) {
      const baseModel = await api.toBaseModel(settings.baseModel, "baseModel");
      const json = toWire(createModelRequest, { ...settings, baseModel });
      // The service may first have to load or download the base model.
      const limits = { signal, timeoutMs, headersTimeoutMs: LONG_CALL_MS };
      // Names are unique, so that a repeated request cannot create a second model.
      const request = { json, idempotencyKey, isRepeatable: true, ...limits };
      const answer = await withOptionNames(optionNames(createModelRequest), () => callCreate(api, "/v1/preview/models", request));
      return new Model(service, parseFields(model, answer, "model"));
    },
    async delete(modelId, options = {}) {
      const answer = await callJson(api, "DELETE", `/v1/preview/models/${encodeURIComponent(modelId)}`, options);
      return parseFields(deleteModelResponse, answer, "answer to the deletion of a model");
    },
    async list(options = {}) {
      const answer = await api.transport.json("GET", `${api.inferenceUrl}/models`, options);
      return parseResponse(servedModelList, answer, "list of models").data.map((each) => fromWire(servedFields, each));
    },
    async listTrainable({ entity, project, name, ...options } = {}) {
      const list = { schema: modelList, query: { entity, project, name }, itemsName: "models" };
      return (await allPages(api, "/v1/preview/models", list, options)).map((each) => fromWire(modelSummary, each));
    },
  };
}
