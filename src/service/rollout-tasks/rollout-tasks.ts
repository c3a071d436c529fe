/** Parts of the service that rollout plans and their tasks share. */
import { OutcomeWriter } from "./outcome-writer.ts";
import { RolloutCleanup, type CleanupContext } from "./cleanup.ts";
import { RolloutLeases } from "./leases.ts";

/** Leases, outcomes and deletions of rollout tasks. */
export interface RolloutTasks {
  readonly leases: RolloutLeases;
  readonly writer: OutcomeWriter;
  readonly cleanup: RolloutCleanup;
}

/** Creates the parts of a service. */
export function createRolloutTasks(context: CleanupContext): RolloutTasks {
  return { leases: new RolloutLeases(context), writer: new OutcomeWriter(context), cleanup: new RolloutCleanup(context) };
}
