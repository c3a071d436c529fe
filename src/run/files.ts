/** Names of the files in a run directory. Functions return paths relative to the directory, with `/` separators. */
import type { Split } from "./data.ts";

/** Settings of the run, one JSON object. */
export const RUN_CONFIG_FILE = "config.json";
/** Recorded events, the source of truth of the run. */
export const EVENTS_FILE = "events.jsonl";
/** A row per completed step and evaluation, derived from the events. */
export const METRICS_FILE = "metrics.jsonl";
/** Created and deleted checkpoints, derived from the events. */
export const CHECKPOINTS_FILE = "checkpoints.jsonl";
/** Notes and tags of the user. */
export const NOTES_FILE = "notes.jsonl";
/** Lock of the process that runs the run. */
export const LOCK_FILE = "run.lock";
/** Default name of the report page. */
export const REPORT_FILE = "report.html";
/** Folder of the groups: one folder per split, in it one file per step. */
export const TRAJECTORIES_FOLDER = "trajectories";

/** Returns the path of the groups of a step or evaluation. */
export function trajectoryFile(split: Split, step: number): string {
  return `${TRAJECTORIES_FOLDER}/${split}/${stepName(step)}`;
}

/** Returns the path of the trainer's advantages and log-probabilities of a step. */
export function trainedFile(step: number): string {
  return `trained/${stepName(step)}`;
}

/** Returns the path of a tracker's position in the events. */
export function trackerFile(name: string): string {
  return `trackers/${name}.json`;
}

/** Returns the step of a file name such as `000012.jsonl`; null for another name. */
export function stepOfName(name: string): number | null {
  const digits = /^(\d+)\.jsonl$/u.exec(name)?.[1];
  return digits === undefined ? null : Number(digits);
}

/** Returns the name of a step's file. Padded, so that the files of a folder sort by step. */
function stepName(step: number): string {
  return `${String(step).padStart(6, "0")}.jsonl`;
}
