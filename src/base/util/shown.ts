/** Returns a value as shown in error messages: JSON, or the name of a number that JSON lacks, such as NaN; cut to 80 characters. */
export function shown(value: unknown): string {
  const text = typeof value === "bigint" || typeof value === "number" ? String(value) : (JSON.stringify(value) ?? String(value));
  return text.length > 80 ? `${text.slice(0, 77)}...` : text;
}
