/** Values and texts in error messages. */

/** Returns a value as shown in error messages: JSON, or the name of a number that JSON lacks, such as NaN; cut to 80 characters. */
export function shown(value: unknown): string {
  const text = typeof value === "bigint" || typeof value === "number" ? String(value) : (JSON.stringify(value) ?? String(value));
  return shortened(text, 80);
}

/** Returns a text cut to `maxLength` characters, of which the last three are dots. */
export function shortened(text: string, maxLength: number): string {
  return text.length > maxLength ? `${text.slice(0, maxLength - 3)}...` : text;
}
