/**
 * A number in plain text: a sign that does not stand between two operands or inside a word, digits that may be grouped, decimals,
 * an exponent.
 */
const NUMBER = /(?:(?<![\d)\]\p{L}])[-+\u2212])?(?:(?:\d{1,3}(?:,\d{3})+(?!\d|,\d)|\d+)(?:\.\d+)?|\.\d+)(?:[eE][-+]?\d+)?/gu;

/**
 * The first or last number of a text; null without one, or for one that a float64 cannot hold.
 *
 * `1,234.5` is one number, `1,2` are two; in `5-3` and `GPT-4` the dash is no sign, in `is -3` it is.
 */
export function numberIn(text: string, which: "first" | "last"): number | null {
  const written = [...text.matchAll(NUMBER)].at(which === "first" ? 0 : -1)?.[0];
  if (written === undefined) return null;
  const value = Number(written.replaceAll(",", "").replace("\u2212", "-"));
  return Number.isFinite(value) ? value : null;
}
