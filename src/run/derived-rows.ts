/** Rows of `metrics.jsonl` and `checkpoints.jsonl` that follow from the events of a run. */
import type { Split } from "./data.ts";
import type { RecordedEvent } from "./events.ts";
import { CHECKPOINTS_FILE, METRICS_FILE } from "./files.ts";

/** Row of a derived file. */
export interface DerivedRow {
  readonly file: typeof METRICS_FILE | typeof CHECKPOINTS_FILE;
  /** Metrics have a `split`, and checkpoints an `event`. */
  readonly row: Readonly<Record<string, unknown>> & {
    readonly step: number;
    readonly split?: Split;
    readonly event?: "created" | "deleted";
  };
}

/** Returns a key that is different for all rows of a run. */
export function keyOf({ split, event, step }: DerivedRow["row"]): string {
  return `${split ?? event}:${step}`;
}

/** Returns the rows of the derived files that follow from an event. */
export function derivedRows(event: RecordedEvent): readonly DerivedRow[] {
  const { time } = event;
  switch (event.type) {
    case "step-end": {
      const { step, policyStep, checkpointStep, metrics } = event;
      const trainRow = { step, split: "train", time, policy_step: policyStep, checkpoint_step: checkpointStep, ...metrics } as const;
      const rows: DerivedRow[] = [{ file: METRICS_FILE, row: trainRow }];
      // A skipped step ends at the previous checkpoint.
      if (metrics["skipped"] === 1) return rows;
      return [...rows, { file: CHECKPOINTS_FILE, row: { event: "created", step: checkpointStep, time, run_step: step } }];
    }
    case "evaluation-end": {
      const { step, checkpointStep, metrics } = event;
      return [{ file: METRICS_FILE, row: { step, split: "eval", time, policy_step: checkpointStep, ...metrics } }];
    }
    case "checkpoints-delete":
      return event.steps.map((step) => ({ file: CHECKPOINTS_FILE, row: { event: "deleted", step, time } }));
    default:
      return [];
  }
}
