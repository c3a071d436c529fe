/** Texts of the progress display: durations, numbers, bars, and lines that fit a terminal. */

import { encodeLine } from "../util/output.ts";

/** Units of durations, largest first. */
const DURATION_UNITS = [
  { name: "d", seconds: 86_400 },
  { name: "h", seconds: 3_600 },
  { name: "min", seconds: 60 },
  { name: "s", seconds: 1 },
] as const;

/** Formats a duration with its two largest units: `42 s`, `3 min 5 s`, `2 h 10 min`, `1 d 4 h`. */
export function duration(seconds: number): string {
  const total = Math.max(0, Math.round(seconds));
  const index = DURATION_UNITS.findIndex((unit) => total >= unit.seconds);
  const [largest, next] = DURATION_UNITS.slice(index);
  if (index < 0 || largest === undefined) return "0 s";
  const text = `${Math.floor(total / largest.seconds)} ${largest.name}`;
  const nextCount = next === undefined ? 0 : Math.floor((total % largest.seconds) / next.seconds);
  return next === undefined || nextCount === 0 ? text : `${text} ${nextCount} ${next.name}`;
}

/** Formats an integer with thousands separators: `12,345`. */
export function grouped(value: number): string {
  return Math.round(value).toLocaleString("en-US");
}

/** Formats tokens per second; null without tokens or time. */
export function rate(tokens: number, seconds: number): string | null {
  return tokens > 0 && seconds > 0 ? `${grouped(tokens / seconds)} tokens/s` : null;
}

/** Draws a bar of `width` characters for a fraction in [0, 1]. */
export function bar(fraction: number, width = 24): string {
  const filled = Math.round(Math.min(1, Math.max(0, fraction)) * width);
  return `[${"#".repeat(filled)}${"-".repeat(width - filled)}]`;
}

/**
 * Returns an upper bound of the columns that a text takes on a terminal: characters from U+1100 on, some of which are wide, count as 2.
 */
export function terminalColumns(text: string): number {
  let columns = 0;
  for (const character of text) columns += (character.codePointAt(0) as number) >= 0x1100 ? 2 : 1;
  return columns;
}

/** Escapes a text and cuts it to at most `columns` columns, with an ellipsis if it was longer. */
export function fitted(text: string, columns: number): string {
  // No escape sequence of the text reaches the terminal, and its width can be counted.
  const safe = encodeLine(text);
  if (terminalColumns(safe) <= columns) return safe;
  let start = "";
  // The ellipsis takes one column.
  let usedColumns = 1;
  for (const character of safe) {
    usedColumns += terminalColumns(character);
    if (usedColumns > columns) break;
    start += character;
  }
  return `${start}…`;
}
