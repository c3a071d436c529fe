/** Contents of a run directory as plain data: types without Node's interfaces, also for the scripts of the pages. */

/** Purpose of rollouts: training, or evaluation of a checkpoint. */
export type Split = "train" | "eval";

/** Line of `events.jsonl` as recorded: keys in snake_case, see `docs/reference/events.md`. */
export interface RecordedLine {
  readonly seq: number;
  readonly time: string;
  readonly type: string;
  readonly [key: string]: unknown;
}

/** Recorded end of a run: a reason such as `completed` (see `RunEndReason`), or the message of the error that ended the run. */
export type RunEnd = { readonly kind: "ended"; readonly reason: string } | { readonly kind: "failed"; readonly message: string };

/**
 * Status of a run. `running`: a live process holds the lock of the directory. `interrupted`: the run recorded events and no end, so its
 * process was killed or the machine stopped. `unknown`: the directory records no events.
 */
export type RunStatus = RunEnd | { readonly kind: "running" | "interrupted" | "unknown" };

/** Metrics of one split as columns; null for a step without a value. */
export interface ColumnsData {
  /** Numbers of the steps, ascending. */
  readonly steps: readonly number[];
  /** Values by metric, aligned with `steps`. */
  readonly columns: Readonly<Record<string, readonly (number | null)[]>>;
}

/** A checkpoint and its current state. */
export interface CheckpointData {
  /** Step of the model's checkpoint. */
  readonly step: number;
  /** Identifier; empty if the run did not record it. */
  readonly id: string;
  /** Training step that created the checkpoint; null if the run did not record it. */
  readonly runStep: number | null;
  /** Time of the checkpoint's creation, ISO 8601; empty if the run did not record it. */
  readonly time: string;
  /** Last recorded state: present, exempt from deletion, or deleted. */
  readonly state: "kept" | "pinned" | "deleted";
  /** Metrics recorded with the checkpoint. */
  readonly metrics: Readonly<Record<string, number>>;
}

/** A warning or failure recorded by the run. */
export interface NoticeData {
  /** Type of the recorded event. */
  readonly type: string;
  /** Step of the run; null for an event without a step. */
  readonly step: number | null;
  /** Description of the problem and its remedy. */
  readonly message: string;
}

/** Change of the note or the tags of a run; an absent value stays as it is. */
export interface NotesChange {
  /** At most 10,000 characters; empty to remove the note. */
  readonly note?: string | undefined;
  /** All tags of the run: at most 20, each with at most 50 characters. */
  readonly tags?: readonly string[] | undefined;
}
