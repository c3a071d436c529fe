/** Times and sizes as text for the dashboard. */

/** Seconds of each unit. */
const [MINUTE_S, HOUR_S, DAY_S] = [60, 3600, 86_400];

/** Formats a time relative to `now`, in milliseconds since 1970, in the largest fitting unit, such as `3 min ago`; `–` for null. */
export function ago(time: string | null | undefined, now: number): string {
  if (time === null || time === undefined) return "–";
  const passedSeconds = Math.max(0, (now - Date.parse(time)) / 1000);
  if (!Number.isFinite(passedSeconds)) return "–";
  if (passedSeconds < MINUTE_S) return "just now";
  if (passedSeconds < HOUR_S) return `${Math.floor(passedSeconds / MINUTE_S)} min ago`;
  if (passedSeconds < DAY_S) return `${Math.floor(passedSeconds / HOUR_S)} h ago`;
  const days = Math.floor(passedSeconds / DAY_S);
  return days < 60 ? `${days} d ago` : time.slice(0, 10);
}

/** Formats a time as `2026-11-22 14:05 UTC`; `–` for null. */
export function timeText(time: string | null | undefined): string {
  return time === null || time === undefined ? "–" : `${time.slice(0, 16).replace("T", " ")} UTC`;
}

/** Units of sizes, each 1000 times the one before. */
const UNITS = ["B", "kB", "MB", "GB", "TB"];

/** Formats a number of bytes in decimal units. */
export function bytes(size: number | null | undefined): string {
  if (size === null || size === undefined) return "–";
  const power = size < 1 ? 0 : Math.min(UNITS.length - 1, Math.floor(Math.log10(size) / 3));
  const value = size / 1000 ** power;
  return `${power === 0 || value >= 100 ? value.toFixed(0) : value.toFixed(1)} ${UNITS[power]}`;
}
