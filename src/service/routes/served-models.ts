/** The routes of models that can be sampled, in the format of the OpenAI API. */
import { createHash } from "node:crypto";
import { NotFoundError, UnsupportedError } from "../../base/errors.ts";
import {
  deletedServedModel,
  servedModel,
  servedModelList,
  type DeletedServedModel,
  type ModelPermission,
  type ServedModel,
  type ServedModelList,
} from "../../base/schema/index.ts";
import type { ServiceRequest } from "../http/body.ts";
import { principalOf } from "../http/principal.ts";
import type { RouteContext } from "./context.ts";
import { deleteModel } from "./models.ts";
import { pathParameter, type Route } from "../openapi/route.ts";
import { pathOf, stepName } from "../common/names.ts";
import { isAlias, listAliases } from "../store/aliases.ts";
import { listModels } from "../store/models.ts";

/** Returns the permissions of a key with all scopes. `id` does not change between requests. */
function permissionOf(id: string, created: number, { allowsTraining }: { readonly allowsTraining: boolean }): ModelPermission {
  return {
    id: `modelperm-${createHash("sha256").update(id).digest("hex").slice(0, 16)}`,
    object: "model_permission",
    created,
    allow_create_engine: false,
    allow_sampling: true,
    allow_logprobs: true,
    allow_search_indices: false,
    allow_view: true,
    allow_fine_tuning: allowsTraining,
    organization: "*",
    group: null,
    is_blocking: false,
  };
}

/** Converts milliseconds to whole seconds. */
function toSeconds(timeMs: number): number {
  return Math.floor(timeMs / 1000);
}

/** Size of a base model: its context length in tokens and its number of parameters; null if unknown. */
type ModelSize = Pick<ServedModel, "max_model_len" | "parameters">;

/**
 * Creates `GET /v1/models`: first the base models, then every trainable model with its newest checkpoint as `root`, then the names of
 * fine-tuned models and their checkpoints; and `GET /v1/models/{model}`, an entry of this list. Other steps are not listed.
 */
export function servedModelRoutes(context: RouteContext): Route[] {
  const { engine, bases, upstream } = context;
  const startedSeconds = toSeconds(Date.now());

  /** Returns the size of a base model; nulls if the model is not on this machine, because listing must not fetch models. */
  async function sizeOf(base: string): Promise<ModelSize> {
    const upstreamLength = upstream?.contextLengthOf(base) ?? null;
    if (!(await bases.isOnThisMachine(base))) return { max_model_len: upstreamLength, parameters: null };
    try {
      const { contextLength, parameters } = await engine.describeBase(base);
      return { max_model_len: upstreamLength ?? contextLength, parameters: Number.isNaN(parameters) ? null : parameters };
    } catch {
      // Files removed after the start are reported by requests that use the base model.
      return { max_model_len: upstreamLength, parameters: null };
    }
  }

  /** Lists the models that the caller of a request may sample. */
  async function listServed(c: ServiceRequest): Promise<ServedModel[]> {
    const { store } = context.of(c);
    const trainableBases = bases.ids;
    const models = (await listModels(store)).filter((model) => model.latest_step !== null);
    // A key for one model does not permit base models.
    const maySampleBases = principalOf(c).visibility.modelId === null;
    const baseIds = maySampleBases ? [...new Set([...trainableBases, ...(upstream?.baseModels.keys() ?? [])])] : [];
    const sizes = new Map<string, ModelSize>();
    for (const base of new Set([...baseIds, ...models.map((model) => model.base_model)])) sizes.set(base, await sizeOf(base));
    const toEntry = (id: string, created: number, source: Pick<ServedModel, "owned_by" | "root" | "parent">): ServedModel => ({
      id,
      object: "model",
      created,
      ...source,
      ...sizes.get(source.parent ?? id),
      permission: [permissionOf(id, created, { allowsTraining: source.parent !== null || trainableBases.includes(id) })],
    });
    const baseEntries = baseIds.map((id) => toEntry(id, startedSeconds, { owned_by: "whetstone", root: id, parent: null }));
    const modelEntries = models.map((model) => {
      const source = { owned_by: model.entity, root: stepName(model, model.latest_step ?? 0), parent: model.base_model };
      return toEntry(pathOf(model), toSeconds(Date.parse(model.created_at)), source);
    });
    const aliasEntries = (await listAliases(store)).map(({ name, entity, project, model_name, step, base_model, created_at }) => {
      const root = stepName({ entity, project, name: model_name }, step);
      return toEntry(name, toSeconds(Date.parse(created_at)), { owned_by: entity, root, parent: base_model });
    });
    return [...baseEntries, ...modelEntries, ...aliasEntries];
  }

  const common = { method: "GET", tag: "Models" } as const;
  const singleModel = { path: "/v1/models/{model}", isExtension: true } as const;
  return [
    {
      ...common,
      path: "/v1/models",
      id: "listServedModels",
      access: ["train", "sample", "read"],
      summary: "List the models that can be sampled",
      answer: servedModelList,
      handle: async (c) => c.json({ object: "list", data: await listServed(c) } satisfies ServedModelList),
    },
    {
      ...common,
      ...singleModel,
      id: "getServedModel",
      access: ["train", "sample", "read"],
      summary: "Get a model that can be sampled",
      answer: servedModel,
      handle: async (c) => {
        const id = pathParameter(c, "model");
        const found = (await listServed(c)).find((model) => model.id === id);
        if (found !== undefined) return c.json(found);
        throw new NotFoundError(`Model '${id}' does not exist. GET /v1/models lists the models that can be sampled`, { param: "model" });
      },
    },
    {
      ...common,
      ...singleModel,
      method: "DELETE",
      id: "deleteServedModel",
      access: ["train"],
      summary: "Delete a fine-tuned model with its checkpoints",
      description: "The model is named as the fine-tuning job names it, without a checkpoint. Other models have routes of their own.",
      answer: deletedServedModel,
      errors: [400],
      handle: async (c) => {
        const id = pathParameter(c, "model");
        const scoped = context.of(c);
        const alias = (await listAliases(scoped.store)).find(({ name }) => name === id);
        // An alias with a step of its job names a single checkpoint.
        if (alias?.job_step !== null) throw undeletableError(id, { exists: alias !== undefined });
        await deleteModel(scoped, alias.model_id);
        return c.json({ id, object: "model", deleted: true } satisfies DeletedServedModel);
      },
    },
  ];
}

/** Returns the error for a name that names no fine-tuned model. `exists` is whether it names a checkpoint of one. */
function undeletableError(id: string, { exists }: { readonly exists: boolean }): Error {
  if (!exists && isAlias(id)) return new NotFoundError(`Model '${id}' does not exist. GET /v1/models lists the models`, { param: "model" });
  const message = `Expected the name of a fine-tuned model, 'ft:…' without ':ckpt-step-N', got '${id}'. Delete other models and single checkpoints with the routes below /v1/preview/models`;
  return new UnsupportedError(message, { param: "model" });
}
