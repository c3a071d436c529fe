/** The routes of checkpoints: list, read, download, pin, delete. */
import { logFailure } from "../common/logger.ts";
import { randomUUID } from "node:crypto";
import { mkdir, type FileHandle } from "node:fs/promises";
import { join } from "node:path";
import type { Readable } from "node:stream";
import { type Engine, OPTIMIZER_FILE } from "../../engine/port.ts";
import { ArgumentError, ConflictError, NotFoundError } from "../../base/errors.ts";
import {
  archiveQuery,
  checkpoint,
  checkpointList,
  deleteCheckpointsRequest,
  deleteCheckpointsResponse,
  listQuery,
  type Checkpoint,
  type CheckpointLineage,
  type CheckpointList,
  type DeleteCheckpointsResponse,
} from "../../base/schema/index.ts";
import { readJson, readQuery, type ServiceRequest } from "../http/body.ts";
import { archiveOf } from "../checkpoints/archive.ts";
import { checkpointBytes } from "../checkpoints/disk-use.ts";
import type { RouteContext, ServiceContext } from "./context.ts";
import { findStoredState } from "../disk/stored-path.ts";
import { piecesOf } from "../disk/digests.ts";
import { remove } from "../disk/files.ts";
import { loraOf } from "../jobs/warm-models.ts";
import { pathOf } from "../common/names.ts";
import { checkpointAt, newestCheckpoint, pageOfCheckpoints } from "../store/checkpoints.ts";
import { pageBody } from "../store/paging.ts";
import { liveJobs } from "../store/jobs.ts";
import { getModel } from "../store/models.ts";
import type { CheckpointRow, ModelRow, Store } from "../store/tables.ts";
import { pathParameter, type Route } from "../openapi/route.ts";
import type { OpenCheckpoint } from "../stored-files/stored-files.ts";
import { webStream } from "../http/web-stream.ts";
import { transact } from "../store/database.ts";

const PATH = "/v1/preview/models/{model_id}/checkpoints";
const tag = "Checkpoints";
const extension = { tag, isExtension: true } as const;

/** Converts a checkpoint to its form in answers. */
function toWire(row: CheckpointRow): Checkpoint {
  return {
    id: row.id,
    step: row.step,
    metrics: JSON.parse(row.metrics) as Record<string, number>,
    created_at: row.created_at,
    pinned: row.pinned === 1,
    ...(row.lineage === null ? {} : { lineage: JSON.parse(row.lineage) as CheckpointLineage }),
  };
}

/** Creates the routes below `/v1/preview/models/{model_id}/checkpoints`. */
export function checkpointRoutes(context: RouteContext): Route[] {
  const storeOf = (c: ServiceRequest) => context.of(c).store;
  const withSize = async (row: CheckpointRow): Promise<Checkpoint> => ({ ...toWire(row), bytes: await checkpointBytes(context, row) });
  return [
    {
      method: "GET",
      path: PATH,
      id: "listCheckpoints",
      access: ["train", "read"],
      tag,
      summary: "List the checkpoints of a model by step",
      query: listQuery,
      answer: checkpointList,
      handle: async (c) => {
        const query = readQuery(c, listQuery);
        const store = storeOf(c);
        const model = await getModel(store, pathParameter(c, "model_id"));
        const { rows, hasMore } = await pageOfCheckpoints(store, model.id, query);
        return c.json(pageBody(await Promise.all(rows.map(withSize)), hasMore) satisfies CheckpointList);
      },
    },
    {
      method: "DELETE",
      path: PATH,
      id: "deleteCheckpoints",
      access: ["train"],
      tag,
      summary: "Delete checkpoints by step",
      description: "Unknown steps are reported, not an error. While a job is not over, step 0 and the newest step are kept: 409.",
      body: deleteCheckpointsRequest,
      answer: deleteCheckpointsResponse,
      errors: [409],
      handle: async (c) => {
        const { value } = await readJson(c, "checkpoints", context.work.bodies);
        return c.json(await deleteCheckpoints(context.of(c), pathParameter(c, "model_id"), value.steps));
      },
    },
    {
      ...extension,
      method: "GET",
      path: `${PATH}/{step}`,
      id: "getCheckpoint",
      access: ["train", "read"],
      summary: "Read a checkpoint",
      answer: checkpoint,
      handle: async (c) => {
        const found = await findRequested(storeOf(c), c);
        return c.json(await withSize(found.checkpoint));
      },
    },
    {
      ...extension,
      method: "GET",
      path: `${PATH}/{step}/archive`,
      id: "downloadCheckpoint",
      access: ["train", "read"],
      summary: "Download a checkpoint",
      description: "An adapter in the layout of PEFT, or a whole model in the layout of Hugging Face.",
      query: archiveQuery,
      answer: {
        description: "A tar archive.",
        content: { "application/x-tar": "binary" },
        headers: { "Content-Disposition": "The name of the file." },
      },
      handle: async (c) => {
        const { model, checkpoint: found } = await findRequested(storeOf(c), c);
        const { include } = readQuery(c, archiveQuery);
        const archive = await openArchive(context.of(c), { model, checkpoint: found, includesBase: include === "base" });
        return c.body(webStream(archive), 200, {
          "content-type": "application/x-tar",
          "content-disposition": `attachment; filename="${model.name}-step${found.step}.tar"`,
        });
      },
    },
    {
      ...extension,
      method: "PUT",
      path: `${PATH}/{step}/pin`,
      id: "pinCheckpoint",
      access: ["train"],
      summary: "Keep a checkpoint and its optimizer state beyond the budget",
      answer: checkpoint,
      handle: async (c) => c.json(await withSize(await pin(storeOf(c), pathParameter(c, "model_id"), pathParameter(c, "step")))),
    },
    {
      ...extension,
      method: "DELETE",
      path: `${PATH}/{step}/pin`,
      id: "unpinCheckpoint",
      access: ["train"],
      summary: "Remove the pin of a checkpoint",
      description: "A checkpoint that is not the newest loses its optimizer state.",
      answer: checkpoint,
      handle: async (c) => c.json(await withSize(await unpin(context.of(c), pathParameter(c, "model_id"), pathParameter(c, "step")))),
    },
  ];
}

/** Finds the model and the checkpoint in the path of a request. */
function findRequested(store: Store, c: ServiceRequest): Promise<RequestedCheckpoint> {
  return findAtStep(store, pathParameter(c, "model_id"), pathParameter(c, "step"));
}

/** A checkpoint and its model. */
interface RequestedCheckpoint {
  readonly model: ModelRow;
  readonly checkpoint: CheckpointRow;
}

/**
 * Finds a model and its checkpoint.
 *
 * @param step - Step number or `latest`.
 * @throws NotFoundError `E_NOT_FOUND` for an unknown model or checkpoint.
 * @throws ArgumentError `E_ARGUMENT` for any other `step`.
 */
async function findAtStep(store: Store, modelId: string, step: string): Promise<RequestedCheckpoint> {
  const model = await getModel(store, modelId);
  if (!/^(?:\d{1,9}|latest)$/u.test(step))
    throw new ArgumentError(`Expected a step or 'latest', got '${step.slice(0, 100)}'`, { param: "step" });
  const checkpoint = step === "latest" ? await newestCheckpoint(store, model.id) : await checkpointAt(store, model.id, Number(step));
  if (checkpoint !== undefined) return { model, checkpoint };
  throw new NotFoundError(`Model '${pathOf(model)}' has no checkpoint at step ${step}: it was deleted or never made`, { param: "step" });
}

/**
 * Opens the archive of a checkpoint. Retention keeps the checkpoint until the stream closes.
 *
 * @throws NotFoundError `E_NOT_FOUND` if the checkpoint is deleted meanwhile.
 */
async function openArchive(
  context: ServiceContext,
  { model, checkpoint, includesBase }: RequestedCheckpoint & { readonly includesBase: boolean },
): Promise<Readable> {
  const { directory, engine, uses, logger } = context;
  const release = uses.hold(checkpoint.id);
  const scratch = join(directory.temporary, randomUUID());
  let state: OpenCheckpoint | null = null;
  const finish = async () => {
    state?.release();
    release();
    await remove(scratch).catch(logFailure(logger, "What a download left could not be removed"));
  };
  // Retention skips held checkpoints, but a deletion by a user does not. It deletes the row before the files, so the files exist as long as
  // the row does.
  const requireExisting = () => findAtStep(context.store, model.id, String(checkpoint.step));
  try {
    await requireExisting();
    state = await openState(context, { model, checkpoint }, scratch);
    const archive = await archiveOf({
      checkpoint: toWire(checkpoint),
      model: pathOf(model),
      base: await engine.describeBase(model.base_model),
      state,
      isAdapter: model.lora !== null,
      includesBase,
    });
    archive.once("close", () => void finish());
    // The checkpoint may have been deleted while its files were opened.
    await requireExisting().catch((error: unknown) => {
      archive.destroy();
      throw error;
    });
    return archive;
  } catch (error) {
    await finish();
    // A deletion is the likely cause of any other error.
    await requireExisting();
    throw error;
  }
}

/** Opens the files of a checkpoint; null for a checkpoint that is the base model. A directory that must be made is `scratch`. */
async function openState(
  { files, engine }: Pick<ServiceContext, "files" | "engine">,
  { model, checkpoint }: RequestedCheckpoint,
  scratch: string,
): Promise<OpenCheckpoint | null> {
  if (checkpoint.state_dir !== null) return files.openCheckpoint(model, checkpoint);
  // A newly initialized whole model is its base. A newly initialized adapter has no files; its seed recreates it.
  if (model.lora === null) return null;
  return { path: await saveFreshAdapter(engine, model, scratch), read: readUnverified, release: () => undefined };
}

/** Reads a file that was just written and has no digest. */
function readUnverified(_name: string, file: FileHandle): AsyncIterable<Uint8Array> {
  return piecesOf(file);
}

/** Saves the newly initialized adapter of a model, which its seed determines, and returns its directory. */
async function saveFreshAdapter(engine: Engine, model: ModelRow, path: string): Promise<string> {
  await mkdir(path, { mode: 0o700 });
  const handle = await engine.createModel({ base: model.base_model, ...loraOf(model), seed: model.seed });
  try {
    await engine.saveState(handle, path);
    return path;
  } finally {
    await engine.unload(handle);
  }
}

/** Pins a checkpoint, so that retention keeps it with its optimizer state. */
function pin(store: Store, modelId: string, step: string): Promise<CheckpointRow> {
  return transact(store, async (transaction) => {
    const { checkpoint } = await findAtStep(transaction, modelId, step);
    await transaction.updateTable("checkpoints").set({ pinned: 1 }).where("id", "=", checkpoint.id).execute();
    return { ...checkpoint, pinned: 1 };
  });
}

/** Removes a pin. A checkpoint that is not the newest then loses its optimizer state, which was kept only for the pin. */
async function unpin({ store, storage, retention, space }: ServiceContext, modelId: string, step: string): Promise<CheckpointRow> {
  const change = async (transaction: Store) => {
    const { checkpoint } = await findAtStep(transaction, modelId, step);
    const isNewest = (await newestCheckpoint(transaction, checkpoint.model_id))?.id === checkpoint.id;
    const changed = { pinned: 0, optimizer_kind: isNewest ? checkpoint.optimizer_kind : null };
    await transaction.updateTable("checkpoints").set(changed).where("id", "=", checkpoint.id).execute();
    return { row: { ...checkpoint, ...changed }, isNewest };
  };
  const { row, isNewest } = await space.freeing(() => transact(store, change));
  const state = findStoredState(row);
  if (!isNewest && state !== null) await storage.remove(`${state}/${OPTIMIZER_FILE}`);
  await retention.enforceBudget();
  return row;
}

/** Deletes the checkpoints at the given steps: first their rows, then their files. */
async function deleteCheckpoints(
  { store, policies, storage, space }: ServiceContext,
  modelId: string,
  requestedSteps: readonly number[],
): Promise<DeleteCheckpointsResponse> {
  const steps = new Set(requestedSteps);
  const change = async (transaction: Store) => {
    const model = await getModel(transaction, modelId);
    const rows = await transaction.selectFrom("checkpoints").selectAll().where("model_id", "=", model.id).orderBy("step").execute();
    const matching = rows.filter((row) => steps.has(row.step));
    const [job] = await liveJobs(transaction, model.id);
    // A job starts from the newest checkpoint, and step 0 is the fallback if training diverges.
    const newestStep = rows.at(-1)?.step;
    const needed = matching.find(({ step }) => step === 0 || step === newestStep);
    if (job !== undefined && needed !== undefined) {
      throw new ConflictError(
        `Step ${needed.step} cannot be deleted while training job '${job.id}' is ${job.status}. Wait for it, or cancel it; nothing was deleted`,
        { param: "steps" },
      );
    }
    for (const row of matching) await transaction.deleteFrom("checkpoints").where("id", "=", row.id).execute();
    return matching;
  };
  const deleted = await space.freeing(() => transact(store, change));
  policies.forget(deleted.map((row) => row.id));
  for (const row of deleted) {
    const state = findStoredState(row);
    if (state !== null) await storage.remove(state);
  }
  const deletedSteps = new Set(deleted.map((row) => row.step));
  return { deleted_count: deleted.length, not_found_steps: [...steps].filter((step) => !deletedSteps.has(step)) };
}
