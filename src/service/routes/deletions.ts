import { Hono } from "hono";
import type { ServiceEnvironment } from "../body.ts";
import type { ServiceContext } from "../context.ts";
import { deleteArtifact, deleteJob, deleteTokens } from "../history/deletion.ts";

/** Deleting artifact versions, jobs and token reports. Extensions. */
export function deletionRoutes(context: ServiceContext): Hono<ServiceEnvironment> {
  return new Hono<ServiceEnvironment>()
    .delete("/v1/preview/artifacts/:id", async (c) => c.json(await deleteArtifact(context, c.req.param("id"))))
    .delete("/v1/preview/training-jobs/:id", async (c) => c.json(await deleteJob(context, c.req.param("id"))))
    .delete("/v1/preview/training-jobs/:id/tokens", async (c) => c.json(await deleteTokens(context, c.req.param("id"))));
}
