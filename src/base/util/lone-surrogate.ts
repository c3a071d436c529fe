/** Escape sequences of a JSON text, in order: a pair of surrogates, a surrogate without its pair (group 1), or any other. */
const ESCAPES = /\\(?:u[dD][89abAB][\da-fA-F]{2}\\u[dD][c-fC-F][\da-fA-F]{2}|(u[dD][89a-fA-F][\da-fA-F]{2})|.)/gsu;

/**
 * Returns the first escape sequence of a JSON text that is half of a surrogate pair, such as `\ud800`; null without one. It names no
 * character: encoding the string as UTF-8 would replace it by U+FFFD without an error.
 */
export function loneSurrogateIn(json: string): string | null {
  if (!json.includes("\\ud") && !json.includes("\\uD")) return null;
  for (const [escape, lone] of json.matchAll(ESCAPES)) if (lone !== undefined) return escape;
  return null;
}
