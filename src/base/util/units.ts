/** Sizes and times as text with units. */

/** Units of `Intl.NumberFormat`, each 1000 times the one before. */
const SIZE_UNITS = ["byte", "kilobyte", "megabyte", "gigabyte", "terabyte"] as const;

/** Formats a number with a unit of `Intl.NumberFormat`. */
function withUnit(value: number, unit: string, fractionDigits: number): string {
  const options = { style: "unit", unit, minimumFractionDigits: fractionDigits, maximumFractionDigits: fractionDigits } as const;
  return new Intl.NumberFormat("en-US", { ...options, unitDisplay: unit === "byte" ? "long" : "short" }).format(value);
}

/** Returns a size with a decimal unit: `512 bytes`, `12.3 MB`. */
export function formatBytes(bytes: number): string {
  let value = bytes;
  let index = 0;
  // 999,950 bytes would round to 1,000.0 kB.
  for (; value >= 999.95 && index < SIZE_UNITS.length - 1; index++) value /= 1000;
  return withUnit(value, SIZE_UNITS[index] ?? "byte", index === 0 ? 0 : 1);
}

/** Bytes of each unit that {@link parseBytes} reads. */
const SIZE_FACTORS: Readonly<Record<string, number>> = { "": 1, B: 1, KB: 1e3, MB: 1e6, GB: 1e9, TB: 1e12 };

/** Parses a size with a decimal unit, such as `500MB` or `1.5 GB`, or a number of bytes. Returns null for any other text. */
export function parseBytes(text: string): number | null {
  const [, digits, unit = ""] = /^(\d+(?:\.\d+)?)\s*([a-z]*)$/iu.exec(text.trim()) ?? [];
  const factor = SIZE_FACTORS[unit.toUpperCase()];
  return digits === undefined || factor === undefined ? null : Math.floor(Number(digits) * factor);
}

/** Returns a duration in its two largest units: `340 ms`, `5.2 s`, `3 min 20 s`, `2 h 5 min`, `4 d 3 h`. */
export function formatDuration(ms: number): string {
  if (ms < 999.5) return `${Math.round(ms)} ms`;
  if (ms < 59_950) return `${(ms / 1000).toFixed(1)} s`;
  const seconds = Math.round(ms / 1000);
  const [minutes, hours, days] = [Math.floor(seconds / 60), Math.floor(seconds / 3600), Math.floor(seconds / 86_400)];
  if (hours === 0) return `${minutes} min ${seconds % 60} s`;
  if (days === 0) return `${hours} h ${minutes % 60} min`;
  return `${days} d ${hours % 24} h`;
}
