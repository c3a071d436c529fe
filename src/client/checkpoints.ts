import { checkpointList, deleteCheckpointsResponse, type Checkpoint } from "../schema/index.ts";
import { callJson, type Api, type CallOptions } from "./api.ts";
import { ProtocolError } from "./errors.ts";
import { deletedCheckpointsFromWire, parseAnswer, type DeletedCheckpoints } from "./wire.ts";

/** Options of `checkpoints.list`. */
export interface ListCheckpointsOptions extends CallOptions {
  /** By step. @default "asc" */
  readonly order?: "asc" | "desc" | undefined;
  /** At most this many. @default all */
  readonly max?: number | undefined;
}

/** The `checkpoints` resource. */
export interface Checkpoints {
  /** All checkpoints of a model, page by page behind the scenes. */
  list(modelId: string, options?: ListCheckpointsOptions): Promise<Checkpoint[]>;
  /** Deletes checkpoints by step. Unknown steps are no error, they are reported. */
  delete(modelId: string, steps: readonly number[], options?: CallOptions): Promise<DeletedCheckpoints>;
}

const PAGE = 100;

export function checkpointsResource(api: Api): Checkpoints {
  const path = (modelId: string) => `/v1/preview/models/${encodeURIComponent(modelId)}/checkpoints`;
  return {
    async list(modelId, { order = "asc", max = Number.POSITIVE_INFINITY, ...options } = {}) {
      const all: Checkpoint[] = [];
      let after: string | undefined;
      while (all.length < max) {
        const query = { after, limit: Math.min(PAGE, max - all.length), order };
        const page = parseAnswer(checkpointList, await callJson(api, "GET", path(modelId), { ...options, query }), "list of checkpoints");
        all.push(...page.data);
        if (!page.has_more) break;
        const last = page.last_id ?? page.data.at(-1)?.id;
        if (last === undefined || last === after)
          throw new ProtocolError("The service says there are more checkpoints but its page has no new last id");
        after = last;
      }
      return all;
    },
    async delete(modelId, steps, options = {}) {
      const answer = await callJson(api, "DELETE", path(modelId), { ...options, json: { steps } });
      return deletedCheckpointsFromWire(parseAnswer(deleteCheckpointsResponse, answer, "answer to a deletion of checkpoints"));
    },
  };
}
