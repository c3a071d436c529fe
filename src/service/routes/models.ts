/** The routes of base models and of trainable models. */
import { logFailure } from "../common/logger.ts";
import { createHash, randomUUID } from "node:crypto";
import { z } from "zod";
import { ConflictError, ForbiddenError, UnsupportedError } from "../../base/errors.ts";
import {
  addBaseModelRequest,
  baseModelName,
  createModelRequest,
  deleteModelResponse,
  model,
  modelList,
  modelQuery,
  type CreateModelRequest,
  type DeleteModelResponse,
  type LoraConfig,
  type Model,
  type ModelList,
} from "../../base/schema/index.ts";
import { readJson, readQuery } from "../http/body.ts";
import { isAdministrator, principalOf } from "../http/principal.ts";
import { modelBytes } from "../checkpoints/disk-use.ts";
import { insertModel } from "../checkpoints/insert-model.ts";
import { prepareOrigin } from "../checkpoints/origin.ts";
import type { RouteContext, ServiceContext } from "./context.ts";
import { storedModel } from "../disk/stored-path.ts";
import { pathParameter, type Route } from "../openapi/route.ts";
import { createOnce, type Creation } from "../http/idempotency.ts";
import { pathOf, type QualifiedName } from "../common/names.ts";
import { liveJobs } from "../store/jobs.ts";
import { findModel, getModel, pageOfModels } from "../store/models.ts";
import { pageBody } from "../store/paging.ts";
import type { ModelRow, Store } from "../store/tables.ts";
import { transact } from "../store/database.ts";
import { entityFor, requireAllModels } from "../store/visibility.ts";

/** Converts a model to its form in answers. */
function toWire({ id, entity, project, name, base_model, lora }: ModelRow): Model {
  return { id, entity, project, name, base_model, run_id: null, lora: lora === null ? null : (JSON.parse(lora) as LoraConfig) };
}

/**
 * Returns the seed of a model's adapter. The seed depends only on the name, so the same script starts from the same weights on every
 * machine.
 */
function seedOf(name: QualifiedName): number {
  return createHash("sha256").update(pathOf(name)).digest().readUInt32BE(0);
}

const tag = "Models";
const BASE_MODELS = { tag, path: "/v1/preview/base-models", isExtension: true } as const;

/** Creates the routes that list and add base models, and that create, list and delete trainable models. */
export function modelRoutes(context: RouteContext): Route[] {
  const { bases, work } = context;
  return [
    {
      ...BASE_MODELS,
      method: "GET",
      id: "listBaseModels",
      access: ["train", "sample", "read"],
      summary: "List the base models that can be trained",
      answer: z.array(z.string()),
      handle: (c) => c.json([...bases.ids]),
    },
    {
      ...BASE_MODELS,
      method: "POST",
      id: "addBaseModel",
      access: ["train"],
      summary: "Fetch and check a base model, and give it an identifier",
      description: "The identifier is known until the service stops.",
      body: addBaseModelRequest,
      answer: baseModelName,
      errors: [404, 409],
      handle: async (c) => {
        const { value } = await readJson(c, "baseModel", work.bodies);
        const id = value.id ?? null;
        if (id !== null && !isAdministrator(principalOf(c)))
          throw new ForbiddenError(
            "Identifiers of base models are the same for all entities: an administrator of the service adds them. Leave `id` out",
            { param: "id" },
          );
        return c.json({ id: await bases.add(value.source, id) });
      },
    },
    {
      method: "POST",
      path: "/v1/preview/models",
      id: "createModel",
      access: ["train"],
      tag,
      summary: "Create a trainable model",
      isIdempotent: true,
      body: createModelRequest,
      answer: model,
      errors: [404, 409],
      handle: async (c) => {
        const { value, digest } = await readJson(c, "model", work.bodies);
        const scoped = context.of(c);
        return createOnce(c, scoped.store, { digest, prepare: () => prepareModel(scoped, value) });
      },
    },
    {
      method: "GET",
      path: "/v1/preview/models",
      id: "listModels",
      access: ["train", "read"],
      tag,
      summary: "List the trainable models, newest first",
      isExtension: true,
      query: modelQuery,
      answer: modelList,
      handle: async (c) => {
        const { store } = context.of(c);
        const { rows, hasMore } = await pageOfModels(store, readQuery(c, modelQuery));
        const data = rows.map(async (row) => ({
          ...toWire(row),
          created_at: row.created_at,
          latest_step: row.latest_step,
          checkpoints: row.checkpoints,
          bytes: await modelBytes({ ...context, store }, row.id),
        }));
        return c.json(pageBody(await Promise.all(data), hasMore) satisfies ModelList);
      },
    },
    {
      method: "DELETE",
      path: "/v1/preview/models/{model_id}",
      id: "deleteModel",
      access: ["train"],
      tag,
      summary: "Delete a model with its checkpoints",
      description: "Jobs of the model that are not over are cancelled first.",
      answer: deleteModelResponse,
      handle: async (c) => c.json(await deleteModel(context.of(c), pathParameter(c, "model_id"))),
    },
  ];
}

/** Checks that the engine supports the requested kind of training: adapters, full models, or both. */
function requireOffered({ engine }: ServiceContext, lora: LoraConfig | null): void {
  const { name, lora: trainsAdapters, fullParameter: trainsWholeModels } = engine.capabilities();
  if (lora === null ? trainsWholeModels : trainsAdapters) return;
  const supported = trainsAdapters
    ? 'only adapters: create it with `lora`, for example {"rank": 16}'
    : "only whole models: leave `lora` out";
  throw new UnsupportedError(`The engine "${name}" of this service trains ${supported}`, { param: "lora" });
}

/** Validates a request for a model and prepares its step 0; or, with `return_existing`, finds the model. */
async function prepareModel(context: ServiceContext, requested: CreateModelRequest): Promise<Creation> {
  requireAllModels(context.store, "the creation of models");
  const request: CreateModelRequest = { ...requested, base_model: context.bases.canonical(requested.base_model) };
  const name: QualifiedName = { entity: entityFor(context.store, request.entity, "entity"), project: request.project, name: request.name };
  /** Returns the model with the requested name. @throws ConflictError `E_CONFLICT` if it exists and the request does not accept it. */
  const findExisting = async (store: Store): Promise<ModelRow | undefined> => {
    const model = await findModel(store, name, "entity");
    if (model === undefined || request.return_existing === true) return model;
    throw new ConflictError(`Model '${pathOf(name)}' exists already. Choose another name, or pass \`return_existing: true\``, {
      param: "name",
    });
  };
  // Checked only without `from`, because the origin may determine `lora`.
  if ((request.from ?? null) === null) requireOffered(context, request.lora ?? null);
  // A model that can never be trained or sampled must not exist.
  await context.bases.requireUsable(request.base_model);
  // Checked before the preparation and again at the commit, because two requests may create the same model concurrently.
  const known = await findExisting(context.store);
  if (known !== undefined) return { commit: async (store) => toWire((await findExisting(store)) ?? (await getModel(store, known.id))) };
  await context.space.requireSpace();
  const id = randomUUID();
  const origin = await prepareOrigin(context, { id, seed: seedOf(name), request });
  let isCreated = false;
  return {
    async commit(store) {
      const existing = await findExisting(store);
      isCreated = existing === undefined;
      return toWire(existing ?? (await insertModel(store, { id, name, baseModel: request.base_model, origin })));
    },
    afterwards: () => {
      const cleanup = isCreated ? context.retention.enforceBudget() : origin.discard();
      cleanup.catch(logFailure(context.logger, "A new model's files could not be put in order"));
    },
    undo: origin.discard,
  };
}

/** Cancels the jobs of a model, then deletes its rows and its files. */
export async function deleteModel(context: ServiceContext, id: string): Promise<DeleteModelResponse> {
  const { store, jobs, policies, storage, space } = context;
  const model = await getModel(store, id);
  for (;;) {
    await cancelJobs(context, model);
    const deleted = await space.freeing(() => transact(store, (transaction) => deleteIdleModel(transaction, model.id)));
    // A job was accepted meanwhile; the next iteration cancels it.
    if (deleted === null) continue;
    policies.forget(deleted);
    await jobs.forgetModel(model.id);
    await storage.remove(storedModel(model.id));
    return { model_id: model.id, deleted_checkpoints: deleted.length, deleted_run: false };
  }
}

/** Cancels the unfinished jobs of a model. */
async function cancelJobs({ store, jobs }: ServiceContext, model: ModelRow): Promise<void> {
  for (const job of await liveJobs(store, model.id)) {
    // A job that has just ended cannot be cancelled and needs no cancellation.
    await jobs.cancel(job).catch((error: unknown) => {
      if (!(error instanceof ConflictError)) throw error;
    });
  }
}

/**
 * Deletes the rows of a model and its checkpoints, unless a job of the model is unfinished. Call in a transaction.
 *
 * @returns the ids of the deleted checkpoints; null for a model with an unfinished job.
 * @throws NotFoundError `E_NOT_FOUND` if another request has deleted the model, so that only one request reports the counts.
 */
async function deleteIdleModel(transaction: Store, id: string): Promise<string[] | null> {
  await getModel(transaction, id);
  if ((await liveJobs(transaction, id)).length > 0) return null;
  const checkpoints = await transaction.deleteFrom("checkpoints").where("model_id", "=", id).returning("id").execute();
  await transaction.deleteFrom("models").where("id", "=", id).execute();
  return checkpoints.map((checkpoint) => checkpoint.id);
}
