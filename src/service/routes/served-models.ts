import { createHash } from "node:crypto";
import { servedModelList, type ModelPermission, type ServedModel, type ServedModelList } from "../../schema/index.ts";
import type { ServiceContext } from "../context.ts";
import { route, type Route } from "../openapi/route.ts";
import { pathOf, stepName } from "../names.ts";
import { listModels } from "../store/models.ts";

/** Returns the permissions of the service's single key. `id` does not change between requests. */
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
function toSeconds(time: number): number {
  return Math.floor(time / 1000);
}

/**
 * Creates `GET /v1/models`: first the base models, then every trainable model with its newest checkpoint as `root`. Steps are not listed.
 */
export function servedModelRoutes({ engine, bases, upstream, store }: ServiceContext): Route[] {
  const startedAt = toSeconds(Date.now());

  /** Returns the context length of a base model; null if the model is not on this machine, because listing must not fetch models. */
  async function contextLengthOf(base: string): Promise<number | null> {
    if (!(await bases.isOnThisMachine(base))) return null;
    try {
      return (await engine.describeBase(base)).contextLength;
    } catch {
      // Files removed after the start are reported by requests that use the base model.
      return null;
    }
  }

  const spec = {
    method: "GET",
    path: "/v1/models",
    id: "listServedModels",
    tag: "Models",
    summary: "List the models that can be sampled",
    answer: servedModelList,
  } as const;
  const list = route(spec, async (c) => {
    const trainable = bases.ids;
    const models = (await listModels(store)).filter((model) => model.latest_step !== null);
    const untrained = [...new Set([...trainable, ...(upstream?.baseModels.keys() ?? [])])];
    const lengths = new Map<string, number | null>();
    for (const base of new Set([...untrained, ...models.map((model) => model.base_model)])) {
      lengths.set(base, upstream?.contextLengthOf(base) ?? (await contextLengthOf(base)));
    }
    const data: ServedModel[] = untrained.map((id) => ({
      id,
      object: "model" as const,
      created: startedAt,
      owned_by: "whetstone",
      root: id,
      parent: null,
      max_model_len: lengths.get(id) ?? null,
      permission: [permissionOf(id, startedAt, { allowsTraining: trainable.includes(id) })],
    }));
    for (const model of models) {
      const [id, created] = [pathOf(model), toSeconds(Date.parse(model.created_at))];
      data.push({
        id,
        object: "model" as const,
        created,
        owned_by: model.entity,
        root: stepName(model, model.latest_step ?? 0),
        parent: model.base_model,
        max_model_len: lengths.get(model.base_model) ?? null,
        permission: [permissionOf(id, created, { allowsTraining: true })],
      });
    }
    return c.json({ object: "list", data } satisfies ServedModelList);
  });
  return [list];
}
