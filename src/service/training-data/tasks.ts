/** Tasks of a work thread for training data. Inputs and results are structured-cloneable. */
import { ConflictError } from "../../base/errors.ts";
import { Handover } from "../../base/util/worker-rpc.ts";
import type { RlBatch } from "../../learner/index.ts";
import { readExampleData, type ExampleSource } from "./example-data.ts";
import { buffersOf, packExamples, type PackedExamples } from "./packed-examples.ts";
import type { TokenizerSource } from "../models/tokenizers.ts";
import {
  acceptGroups,
  batchBuffers,
  batchOf,
  checkOutcome,
  readRlRequest,
  type AcceptedGroups,
  type CheckedOutcome,
  type RlHead,
  type RlJobPlan,
} from "./rl-request.ts";
import type { SentGroup } from "./stored-rollout.ts";

/** Creates the tasks of a thread with these tokenizers. */
export function createDataTasks(tokenizers: TokenizerSource) {
  /** Groups of the RL requests that are open in this thread, by the identifier of the request. */
  const openRequests = new Map<number, readonly SentGroup[]>();
  return {
    /** Parses an RL request and keeps its groups until `closeRl`. */
    openRl: async ({ id, bytes }: { readonly id: number; readonly bytes: Uint8Array }): Promise<RlHead> => {
      const { head, groups } = await readRlRequest(bytes);
      openRequests.set(id, groups);
      return head;
    },

    /** Validates and stores the groups of an open RL request; see `acceptGroups`. */
    acceptRl: async ({ id, plan }: { readonly id: number; readonly plan: RlJobPlan }): Promise<Handover<AcceptedGroups>> => {
      const groups = openRequests.get(id);
      if (groups === undefined)
        throw new ConflictError(`Expected RL request ${id} to be open in the thread that accepts it; call openRl first`);
      const accepted = await acceptGroups(groups, plan, tokenizers);
      return new Handover(accepted, batchBuffers(accepted.batch));
    },

    /** Frees the groups of an RL request. */
    closeRl: (id: number): void => {
      openRequests.delete(id);
    },

    /** Builds the batch of an accepted job from its file; see `batchOf`. */
    rlBatch: async (plan: Omit<RlJobPlan, "rollouts">, signal: AbortSignal): Promise<Handover<RlBatch>> => {
      const batch = await batchOf(plan, tokenizers, signal);
      return new Handover(batch, batchBuffers(batch));
    },

    /** Validates the outcome of a rollout task, and returns its bytes. */
    checkOutcome: (bytes: Uint8Array): Handover<CheckedOutcome> => new Handover(checkOutcome(bytes), [bytes.buffer as ArrayBuffer]),

    /** Reads training data; see `readExampleData`. `unpackExamples` unpacks the result. */
    examples: async (source: ExampleSource, signal: AbortSignal): Promise<Handover<PackedExamples>> => {
      const tokenizer = await tokenizers(source.base.directory);
      const packed = packExamples(await readExampleData(source, { tokenizer, signal }));
      return new Handover(packed, buffersOf(packed));
    },
  } as const;
}

/** Tasks that {@link createDataTasks} creates. */
export type DataTasks = ReturnType<typeof createDataTasks>;
