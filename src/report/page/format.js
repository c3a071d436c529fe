/** A number as people read it: four digits, no noise. */
export function number(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (Number.isInteger(value) && size < 1e15) return grouped(String(value).replace("-", "−"));
  if (size >= 1e6 || size < 1e-4) return value.toExponential(2).replace("-", "−").replace("e−", "e-");
  const digits = size >= 1000 ? 0 : size >= 100 ? 1 : size >= 10 ? 2 : size >= 0.1 ? 3 : 5;
  return grouped(value.toFixed(digits).replace("-", "−"));
}

/** A reward: three decimals, so that a column of them lines up. */
export function rewardText(value) {
  return Math.abs(value) < 1000 ? value.toFixed(3).replace("-", "−") : number(value);
}

/** A number with its sign, two decimals. */
export function signed(value) {
  if (Math.abs(value) < 0.005) return "0.00";
  return `${value > 0 ? "+" : "−"}${Math.abs(value).toFixed(Math.abs(value) >= 10 ? 1 : 2)}`;
}

/** Seconds in the unit that fits. */
export function seconds(value) {
  if (value < 1e-3) return `${(value * 1e6).toFixed(0)} µs`;
  if (value < 1) return `${(value * 1e3).toFixed(value < 0.01 ? 1 : 0)} ms`;
  if (value < 120) return `${value.toFixed(value < 10 ? 2 : 1)} s`;
  if (value < 7200) return `${Math.floor(value / 60)} min ${Math.round(value % 60)} s`;
  return `${Math.floor(value / 3600)} h ${Math.round((value % 3600) / 60)} min`;
}

/** `1 step`, `2 steps`. */
export function count(value, noun, plural = `${noun}s`) {
  return `${grouped(String(value))} ${value === 1 ? noun : plural}`;
}

/** A metric or metadata value of any kind. */
export function scalar(value) {
  if (typeof value === "number") return Number.isInteger(value) ? String(value) : number(value);
  if (value === null) return "null";
  return String(value);
}

/** JSON laid out, or the text as it is where it is no JSON. */
export function prettyJson(text) {
  try {
    const value = JSON.parse(text);
    return typeof value === "object" && value !== null ? JSON.stringify(value, null, 2) : text;
  } catch {
    return text;
  }
}

function grouped(text) {
  const [whole, fraction] = text.split(".");
  if (whole.replace("−", "").length < 5) return text;
  const spaced = whole.replaceAll(/\B(?=(\d{3})+$)/g, "\u202f");
  return fraction === undefined ? spaced : `${spaced}.${fraction}`;
}
