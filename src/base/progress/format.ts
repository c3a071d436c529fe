/** Texts of the progress display. */

import { encodeLine } from "../util/output.ts";

/** Formats a duration with its two largest units: `42 s`, `3 min 5 s`, `2 h 10 min`, `1 d 4 h`. */
export function duration(seconds: number): string {
  const total = Math.max(0, Math.round(seconds));
  const units: readonly (readonly [number, string])[] = [
    [86_400, "d"],
    [3_600, "h"],
    [60, "min"],
    [1, "s"],
  ];
  const first = Math.max(
    0,
    units.findIndex(([size]) => total >= size),
  );
  if (total === 0) return "0 s";
  const [large, small] = [units[first], units[first + 1]] as [readonly [number, string], readonly [number, string] | undefined];
  const rest = small === undefined ? 0 : Math.floor((total % large[0]) / small[0]);
  return `${Math.floor(total / large[0])} ${large[1]}${small === undefined || rest === 0 ? "" : ` ${rest} ${small[1]}`}`;
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
  const safe = encodeLine(text);
  if (terminalColumns(safe) <= columns) return safe;
  let kept = "";
  let used = 1;
  for (const character of safe) {
    used += terminalColumns(character);
    if (used > columns) break;
    kept += character;
  }
  return `${kept}…`;
}
