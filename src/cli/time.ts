/** Times in the output of commands. */
import { formatDuration } from "../base/util/units.ts";

/** Returns an ISO time as local time to the minute: `2026-11-22 17:03`; `-` for null. */
export function formatTime(iso: string | null): string {
  if (iso === null) return "-";
  const date = new Date(iso);
  const pad = (value: number) => String(value).padStart(2, "0");
  return `${date.getFullYear()}-${pad(date.getMonth() + 1)}-${pad(date.getDate())} ${pad(date.getHours())}:${pad(date.getMinutes())}`;
}

/** Returns the time between two ISO times, or until now if there is no end; `-` without a start. */
export function formatElapsed(start: string | null, end: string | null): string {
  if (start === null) return "-";
  const endMs = end === null ? Date.now() : Date.parse(end);
  return formatDuration(endMs - Date.parse(start));
}
