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
  /** Creates a trainable model, or gives the one of this name with `returnExisting`. */
  create(options: CreateModelOptions & CreateOptions): Promise<Model>;
  /** Cancels the model's live jobs, then deletes the model with its checkpoints. Artifacts and the record of its jobs stay. */
  delete(modelId: string, options?: CallOptions): Promise<DeletedModel>;
  /** What can be sampled from: base models, then trainable ones. */
  list(options?: CallOptions): Promise<ServedModel[]>;
}

export function modelsResource(api: Api, service: Service): Models {
  return {
    async create({ signal, timeoutMs, idempotencyKey = randomUUID(), ...options }) {
      // The service may have to load or fetch the base model first. Repeating is safe: names are unique, so that a second
      // model cannot come of it.
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
