import { z } from "zod";
import type { ServiceContext } from "../context.ts";
import { route, type Route } from "../openapi/route.ts";

/** Creates `GET /v1/preview/base-models`, which lists the identifiers that `base_model` accepts as an array of strings. */
export function baseModelRoutes({ engine }: ServiceContext): Route[] {
  return [
    route(
      {
        method: "GET",
        path: "/v1/preview/base-models",
        id: "listBaseModels",
        tag: "Models",
        summary: "List the base models that can be trained",
        isExtension: true,
        answer: z.array(z.string()),
      },
      (c) => c.json([...engine.capabilities().baseModels]),
    ),
  ];
}
