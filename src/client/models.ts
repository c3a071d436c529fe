import { randomUUID } from "node:crypto";
import { deleteModelResponse, model, servedModelList } from "../schema/index.ts";
import { callCreate, callJson, LONG_CALL_MS, type Api, type CallOptions, type CreateOptions } from "./api.ts";
import { Model } from "./model.ts";
import type { Service } from "./service.ts";
import {
  createModelToWire,
  deletedModelFromWire,
  modelFromWire,
  parseAnswer,
  servedModelFromWire,
  type CreateModelOptions,
  type DeletedModel,
  type ServedModel,
} from "./wire.ts";

/** The `models` resource. */
export interface Models {
  /**
   * Creates a trainable model, or with `returnExisting` returns the existing model of this name.
   *
   * @throws HttpError `E_HTTP` for an error status, 409 if the name is taken.
   */
  create(options: CreateModelOptions & CreateOptions): Promise<Model>;
  /** Cancels the model's unfinished jobs, then deletes the model with its checkpoints. Artifacts and job records stay. */
  delete(modelId: string, options?: CallOptions): Promise<DeletedModel>;
  /** Lists the served models: base models, then trainable models. */
  list(options?: CallOptions): Promise<ServedModel[]>;
}

export function modelsResource(api: Api, service: Service): Models {
  return {
    async create({ signal, timeoutMs, idempotencyKey = randomUUID(), ...options }) {
      // The service may first have to load or download the base model. Names are unique, so that a repeated request cannot create a second
      // model.
      const request = { json: createModelToWire(options), idempotencyKey, signal, timeoutMs, headersTimeoutMs: LONG_CALL_MS };
      const answer = await callCreate(api, "/v1/preview/models", request, true);
      return new Model(service, modelFromWire(parseAnswer(model, answer, "model")));
    },
    async delete(modelId, options = {}) {
      const answer = await callJson(api, "DELETE", `/v1/preview/models/${encodeURIComponent(modelId)}`, options);
      return deletedModelFromWire(parseAnswer(deleteModelResponse, answer, "answer to the deletion of a model"));
    },
    async list(options = {}) {
      const answer = await api.transport.json("GET", `${api.inferenceUrl}/models`, options);
      return parseAnswer(servedModelList, answer, "list of models").data.map(servedModelFromWire);
    },
  };
}
