import { deleteArtifactResponse, deleteJobResponse, deleteTokensResponse } from "../../base/schema/index.ts";
import type { ServiceContext } from "./context.ts";
import { deleteArtifact, deleteJob, deleteTokens } from "../history/deletion.ts";
import { pathParameter, route, type Route } from "../openapi/route.ts";

const common = { method: "DELETE", isExtension: true, errors: [409] } as const;
const JOB = "/v1/preview/training-jobs/{job_id}";

/** Creates the routes that delete artifact versions, jobs and token reports. All are extensions of the interface. */
export function deletionRoutes(context: ServiceContext): Route[] {
  return [
    route(
      {
        ...common,
        path: "/v1/preview/artifacts/{artifact_id}",
        id: "deleteArtifactVersion",
        tag: "Artifacts",
        summary: "Delete a version with its files",
        description: "While a job that is not over reads the version, the answer is 409.",
        answer: deleteArtifactResponse,
      },
      async (c) => c.json(await deleteArtifact(context, pathParameter(c, "artifact_id"))),
    ),
    route(
      {
        ...common,
        path: JOB,
        id: "deleteJob",
        tag: "Training jobs",
        summary: "Delete a job that is over, with its events and its token report",
        description: "The checkpoint of the job stays. A job that is queued or running answers 409.",
        answer: deleteJobResponse,
      },
      async (c) => c.json(await deleteJob(context, pathParameter(c, "job_id"))),
    ),
    route(
      {
        ...common,
        path: `${JOB}/tokens`,
        id: "deleteJobTokens",
        tag: "Training jobs",
        summary: "Delete the token report of a job that is over",
        answer: deleteTokensResponse,
      },
      async (c) => c.json(await deleteTokens(context, pathParameter(c, "job_id"))),
    ),
  ];
}
