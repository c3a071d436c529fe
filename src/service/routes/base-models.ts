import { z } from "zod";
import { addBaseModelRequest, baseModelName } from "../../base/schema/index.ts";
import { readJson } from "../http/body.ts";
import type { ServiceContext } from "./context.ts";
import { route, type Route } from "../openapi/route.ts";

const PATH = "/v1/preview/base-models";

/** Creates the routes that list the base models of the service and add others. */
export function baseModelRoutes({ bases, work }: ServiceContext): Route[] {
  return [
    route(
      {
        method: "GET",
        path: PATH,
        id: "listBaseModels",
        tag: "Models",
        summary: "List the base models that can be trained",
        isExtension: true,
        answer: z.array(z.string()),
      },
      (c) => c.json([...bases.ids]),
    ),
    route(
      {
        method: "POST",
        path: PATH,
        id: "addBaseModel",
        tag: "Models",
        summary: "Fetch and check a base model, and give it an identifier",
        description: "The identifier is known until the service stops.",
        isExtension: true,
        body: addBaseModelRequest,
        answer: baseModelName,
        errors: [404, 409],
      },
      async (c) => {
        const { value } = await readJson(c, "baseModel", work.bodies);
        return c.json({ id: await bases.add(value.source, value.id ?? null) });
      },
    ),
  ];
}
