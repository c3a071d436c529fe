/** Numbers and JSON as text for the pages. Minus signs are typographic. */

/** Smallest magnitudes of numbers with 0, 1, 2, 3 and 4 decimals; smaller numbers have 5. */
const MIN_MAGNITUDES = [1000, 100, 10, 0.1, 0.01] as const;

/** Formats an integer in full and another number with about four digits; `–` for a missing or infinite one. */
export function number(value: number | null | undefined): string {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (Number.isInteger(value) && size < 1e15) return grouped(String(value).replace("-", "−"));
  if (size >= 1e6 || size < 1e-4) return value.toExponential(2).replace("-", "−").replace("e−", "e-");
  const index = MIN_MAGNITUDES.findIndex((magnitude) => size >= magnitude);
  const decimals = index < 0 ? MIN_MAGNITUDES.length : index;
  return grouped(value.toFixed(decimals).replace("-", "−"));
}

/** Formats a reward with three decimals, so that a column of rewards is aligned. */
export function rewardText(value: number): string {
  return Math.abs(value) < 1000 ? value.toFixed(3).replace("-", "−") : number(value);
}

/** Formats a number with its sign and two decimals, from 10 on with one. */
export function signed(value: number): string {
  if (Math.abs(value) < 0.005) return "0.00";
  return `${value > 0 ? "+" : "−"}${Math.abs(value).toFixed(Math.abs(value) >= 10 ? 1 : 2)}`;
}

/** Returns the class of a positive or negative number in the style sheet; undefined for 0. */
export function signClass(value: number): "negative" | "positive" | undefined {
  if (value === 0) return undefined;
  return value < 0 ? "negative" : "positive";
}

/** Formats a number with `digits` decimals. A number that rounds to zero has no sign. */
export function decimal(value: number, digits = 4): string {
  const text = value.toFixed(digits);
  return text.replace("-", /[1-9]/u.test(text) ? "−" : "");
}

/** Formats the probability of a log-probability in percent. */
export function probability(logprob: number): string {
  const percent = Math.exp(logprob) * 100;
  return percent < 0.01 ? "< 0.01 %" : `${percent.toPrecision(3)} %`;
}

/** Formats seconds in the unit that fits. */
export function seconds(value: number): string {
  if (value < 1e-3) return `${(value * 1e6).toFixed(0)} µs`;
  if (value < 1) return `${(value * 1e3).toFixed(value < 0.01 ? 1 : 0)} ms`;
  if (value < 120) return `${value.toFixed(value < 10 ? 2 : 1)} s`;
  if (value < 7200) return `${Math.floor(value / 60)} min ${Math.round(value % 60)} s`;
  return `${Math.floor(value / 3600)} h ${Math.round((value % 3600) / 60)} min`;
}

/** Formats a count with its noun: `1 step`, `2 steps`. */
export function count(value: number, noun: string, plural = `${noun}s`): string {
  return `${grouped(String(value))} ${value === 1 ? noun : plural}`;
}

/** Formats a metric or metadata value of any kind. */
export function scalar(value: number | string | boolean | null): string {
  if (typeof value === "number") return Number.isInteger(value) ? String(value) : number(value);
  return String(value);
}

/** Indents JSON; returns any other text unchanged. */
export function prettyJson(text: string): string {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === "object" && value !== null ? JSON.stringify(value, null, 2) : text;
  } catch {
    return text;
  }
}

/** Separates the digits of a number by thousands if it has at least five before the point. */
function grouped(text: string): string {
  const [integerPart = "", fraction] = text.split(".");
  if (integerPart.replace("−", "").length < 5) return text;
  const spaced = integerPart.replaceAll(/\B(?=(\d{3})+$)/g, "\u202f");
  return fraction === undefined ? spaced : `${spaced}.${fraction}`;
}
