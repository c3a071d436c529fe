/** `strftime` of Python for the formats that templates use. */

import { unsupported } from "./errors.ts";

const two = (value: number): string => String(value).padStart(2, "0");
const named = (now: Date, options: Intl.DateTimeFormatOptions): string => new Intl.DateTimeFormat("en-US", options).format(now);
const hour12 = (now: Date): number => now.getHours() % 12 || 12;
const dayOfYear = (now: Date): number =>
  Math.round((Date.UTC(now.getFullYear(), now.getMonth(), now.getDate()) - Date.UTC(now.getFullYear(), 0, 1)) / 86_400_000) + 1;

const CODES: Readonly<Record<string, (now: Date) => string>> = {
  "%": () => "%",
  A: (now) => named(now, { weekday: "long" }),
  B: (now) => named(now, { month: "long" }),
  D: (now) => strftime(now, "%m/%d/%y"),
  F: (now) => strftime(now, "%Y-%m-%d"),
  H: (now) => two(now.getHours()),
  I: (now) => two(hour12(now)),
  M: (now) => two(now.getMinutes()),
  R: (now) => strftime(now, "%H:%M"),
  S: (now) => two(now.getSeconds()),
  T: (now) => strftime(now, "%H:%M:%S"),
  Y: (now) => String(now.getFullYear()),
  a: (now) => named(now, { weekday: "short" }),
  b: (now) => named(now, { month: "short" }),
  d: (now) => two(now.getDate()),
  e: (now) => String(now.getDate()).padStart(2, " "),
  h: (now) => named(now, { month: "short" }),
  j: (now) => String(dayOfYear(now)).padStart(3, "0"),
  m: (now) => two(now.getMonth() + 1),
  n: () => "\n",
  p: (now) => (now.getHours() < 12 ? "AM" : "PM"),
  t: () => "\t",
  u: (now) => String(now.getDay() || 7),
  w: (now) => String(now.getDay()),
  y: (now) => two(now.getFullYear() % 100),
};

/**
 * Returns a local time as text, with English names.
 *
 * @throws TemplateUnsupported naming a code that is not supported. `%-d` and other numbers without padding are.
 */
export function strftime(now: Date, format: string): string {
  return format.replaceAll(/%(-?)(.?)/gs, (whole, bare: string, code: string) => {
    const write = Object.hasOwn(CODES, code) ? CODES[code] : undefined;
    if (write === undefined || (bare !== "" && !"dmHIMSjye".includes(code))) return unsupported(`\`strftime_now\` with \`${whole}\``);
    const text = write(now);
    return bare === "" ? text : text.replace(/^[0 ]+(?=\d)/, "");
  });
}
