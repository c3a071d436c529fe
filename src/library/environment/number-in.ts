/** Parser of the numbers in a plain text, for `numericReward`. */

/**
 * Pattern of a number in plain text: optional sign (not between two operands or inside a word; U+2212 is the minus sign of typography),
 * digits with optional thousands separators, optional decimals, optional exponent.
 */
const NUMBER = /(?:(?<![\d)\]\p{L}])[-+\u2212])?(?:(?:\d{1,3}(?:,\d{3})+(?!\d|,\d)|\d+)(?:\.\d+)?|\.\d+)(?:[eE][-+]?\d+)?/gu;

/**
 * Returns the first or last number of a text; null without a number or if the number overflows a float64.
 *
 * `1,234.5` is one number and `1,2` are two. In `5-3` and `GPT-4` the dash is not a sign; in `is -3` it is.
 */
export function numberIn(text: string, which: "first" | "last"): number | null {
  const match = [...text.matchAll(NUMBER)].at(which === "first" ? 0 : -1);
  if (match === undefined) return null;
  const [digits] = match;
  const value = Number(digits.replaceAll(",", "").replace("\u2212", "-"));
  return Number.isFinite(value) ? value : null;
}
