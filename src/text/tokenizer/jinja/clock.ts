/** `strftime` of Python for the formats that templates use. */

import { unsupported } from "./errors.ts";

const twoDigits = (value: number): string => String(value).padStart(2, "0");
const formatted = (now: Date, options: Intl.DateTimeFormatOptions): string => new Intl.DateTimeFormat("en-US", options).format(now);
const hour12 = (now: Date): number => now.getHours() % 12 || 12;
const dayOfYear = (now: Date): number =>
  Math.round((Date.UTC(now.getFullYear(), now.getMonth(), now.getDate()) - Date.UTC(now.getFullYear(), 0, 1)) / 86_400_000) + 1;

/** Text of each code of `strftime`, by the character after the percent sign. `%D`, `%F`, `%R` and `%T` stand for other formats. */
const CODES: Readonly<Record<string, (now: Date) => string>> = {
  "%": () => "%",
  A: (now) => formatted(now, { weekday: "long" }),
  B: (now) => formatted(now, { month: "long" }),
  D: (now) => strftime(now, "%m/%d/%y"),
  F: (now) => strftime(now, "%Y-%m-%d"),
  H: (now) => twoDigits(now.getHours()),
  I: (now) => twoDigits(hour12(now)),
  M: (now) => twoDigits(now.getMinutes()),
  R: (now) => strftime(now, "%H:%M"),
  S: (now) => twoDigits(now.getSeconds()),
  T: (now) => strftime(now, "%H:%M:%S"),
  Y: (now) => String(now.getFullYear()),
  a: (now) => formatted(now, { weekday: "short" }),
  b: (now) => formatted(now, { month: "short" }),
  d: (now) => twoDigits(now.getDate()),
  e: (now) => String(now.getDate()).padStart(2, " "),
  h: (now) => formatted(now, { month: "short" }),
  j: (now) => String(dayOfYear(now)).padStart(3, "0"),
  m: (now) => twoDigits(now.getMonth() + 1),
  n: () => "\n",
  p: (now) => (now.getHours() < 12 ? "AM" : "PM"),
  t: () => "\t",
  u: (now) => String(now.getDay() || 7),
  w: (now) => String(now.getDay()),
  y: (now) => twoDigits(now.getFullYear() % 100),
};

/** Codes of padded numbers. A minus sign removes their padding: `%-d`. */
const PADDED_CODES = "dmHIMSjye";

/**
 * Returns a local time as text, with English names.
 *
 * @throws TemplateUnsupported naming a code that is not supported.
 */
export function strftime(now: Date, format: string): string {
  return format.replaceAll(/%(-?)(.?)/gs, (whole, minus: string, code: string) => {
    const textOf = Object.hasOwn(CODES, code) ? CODES[code] : undefined;
    if (textOf === undefined || (minus !== "" && !PADDED_CODES.includes(code))) return unsupported(`\`strftime_now\` with \`${whole}\``);
    const text = textOf(now);
    return minus === "" ? text : text.replace(/^[0 ]+(?=\d)/, "");
  });
}
