/** Status of a run, from its recorded end and its lock. */

import { resolve } from "node:path";
import { lockOwner } from "../base/util/process-lock.ts";
import type { RunEnd, RunStatus } from "./data.ts";
import { LOCK_FILE } from "./files.ts";
import type { EventRow } from "./rows.ts";

/** Returns the recorded end of a run; null without one. The last event counts, because a failed run may have been resumed. */
export function endOf(events: readonly EventRow[]): RunEnd | null {
  const lastRunEvent = events.findLast(({ type }) => type.startsWith("run-"));
  if (lastRunEvent?.type === "run-end") return { kind: "ended", reason: lastRunEvent.reason ?? "completed" };
  if (lastRunEvent?.type === "run-fail") return { kind: "failed", message: lastRunEvent.message ?? "no message" };
  return null;
}

/** Formats a recorded end for people: the reason, e.g. `completed`, or `failed: …` with the message; null without an end. */
export function endText(end: RunEnd | null): string | null {
  if (end === null) return null;
  return end.kind === "failed" ? `failed: ${end.message}` : end.reason;
}

/**
 * Returns the status of a run.
 *
 * @param end - Recorded end; null without one.
 * @param facts - `isLocked`: whether a live process holds the lock, see {@link isLocked}; `hasEvents`: whether any event is recorded.
 */
export function runStatusOf(end: RunEnd | null, facts: { readonly isLocked: boolean; readonly hasEvents: boolean }): RunStatus {
  if (facts.isLocked) return { kind: "running" };
  return end ?? { kind: facts.hasEvents ? "interrupted" : "unknown" };
}

/** Whether a live process holds the lock of a run directory. */
export async function isLocked(runDir: string): Promise<boolean> {
  return (await lockOwner(resolve(runDir, LOCK_FILE))) !== null;
}
