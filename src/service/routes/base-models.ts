import { Hono } from "hono";
import type { ServiceEnvironment } from "../body.ts";
import type { ServiceContext } from "../context.ts";

/** `GET /v1/preview/base-models`: identifiers that `base_model` accepts, as an array of strings. */
export function baseModelRoutes({ engine }: ServiceContext): Hono<ServiceEnvironment> {
  return new Hono<ServiceEnvironment>().get("/v1/preview/base-models", (c) => c.json([...engine.capabilities().baseModels]));
}
