import { join } from "node:path";
import { Hono } from "hono";
import { ConflictError } from "../../errors.ts";
import {
  deleteCheckpointsRequest,
  listQuery,
  type Checkpoint,
  type CheckpointList,
  type DeleteCheckpointsResponse,
} from "../../schema/index.ts";
import { readJson, readQuery, type ServiceEnvironment } from "../body.ts";
import type { ServiceContext } from "../context.ts";
import { remove } from "../files.ts";
import { pageOfCheckpoints } from "../store/checkpoints.ts";
import { liveJobs } from "../store/jobs.ts";
import { getModel } from "../store/models.ts";
import type { CheckpointRow } from "../store/tables.ts";

const PATH = "/v1/preview/models/:id/checkpoints";

function toWire(row: CheckpointRow): Checkpoint {
  return { id: row.id, step: row.step, metrics: JSON.parse(row.metrics) as Record<string, number> };
}

/** `GET` and `DELETE /v1/preview/models/{model_id}/checkpoints`. */
export function checkpointRoutes(context: ServiceContext): Hono<ServiceEnvironment> {
  const { store } = context;
  return new Hono<ServiceEnvironment>()
    .get(PATH, async (c) => {
      const query = readQuery(c, listQuery);
      const model = await getModel(store, c.req.param("id"));
      const { rows, hasMore } = await pageOfCheckpoints(store, model.id, query);
      const data = rows.map(toWire);
      return c.json({
        object: "list",
        data,
        first_id: data[0]?.id ?? null,
        last_id: data.at(-1)?.id ?? null,
        has_more: hasMore,
      } satisfies CheckpointList);
    })
    .delete(PATH, async (c) => {
      const { value } = await readJson(c, deleteCheckpointsRequest);
      return c.json(await deleteCheckpoints(context, c.req.param("id"), value.steps));
    });
}

async function deleteCheckpoints(
  { store, policies, directory }: ServiceContext,
  id: string,
  asked: readonly number[],
): Promise<DeleteCheckpointsResponse> {
  const steps = [...new Set(asked)];
  const { found, deleted } = await store.transaction().execute(async (transaction) => {
    const model = await getModel(transaction, id);
    const rows = await transaction.selectFrom("checkpoints").selectAll().where("model_id", "=", model.id).orderBy("step").execute();
    const matching = rows.filter((row) => steps.includes(row.step));
    const [job] = await liveJobs(transaction, model.id);
    // A job starts from the newest checkpoint, and step 0 is what a broken training falls back to.
    const needed = matching.find((row) => row.step === 0 || row.step === rows.at(-1)?.step);
    if (job !== undefined && needed !== undefined) {
      throw new ConflictError(
        `Step ${needed.step} cannot be deleted while training job '${job.id}' is ${job.status}. Wait for it, or cancel it; nothing was deleted`,
        { param: "steps" },
      );
    }
    for (const row of matching) await transaction.deleteFrom("checkpoints").where("id", "=", row.id).execute();
    return { found: new Set(matching.map((row) => row.step)), deleted: matching };
  });
  policies.forget(deleted.map((row) => row.id));
  for (const row of deleted) {
    if (row.state_dir !== null) await remove(join(directory.root, row.state_dir));
  }
  return { deleted_count: deleted.length, not_found_steps: steps.filter((step) => !found.has(step)) };
}
