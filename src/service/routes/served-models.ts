import { Hono } from "hono";
import type { ServedModelList } from "../../schema/index.ts";
import type { ServiceEnvironment } from "../body.ts";
import type { ServiceContext } from "../context.ts";
import { pathOf, stepName } from "../names.ts";
import { listModels } from "../store/models.ts";

/** `GET /v1/models`: base models first, then every trainable model with its newest checkpoint as `root`. Steps are not listed. */
export function servedModelRoutes({ engine, upstream, store }: ServiceContext): Hono<ServiceEnvironment> {
  return new Hono<ServiceEnvironment>().get("/v1/models", async (c) => {
    const ids = new Set([...engine.capabilities().baseModels, ...(upstream?.baseModels.keys() ?? [])]);
    const bases = [...ids].map((id) => ({ id, object: "model" as const, created: 0, owned_by: "whetstone", root: id }));
    const trainable = (await listModels(store))
      .filter((model) => model.latest_step !== null)
      .map((model) => ({
        id: pathOf(model),
        object: "model" as const,
        created: Math.floor(Date.parse(model.created_at) / 1000),
        owned_by: model.entity,
        root: stepName(model, model.latest_step ?? 0),
      }));
    return c.json({ object: "list", data: [...bases, ...trainable] } satisfies ServedModelList);
  });
}
