/** Estimates, without expensive work, of whether a request takes too long for the serving thread. */
import type { PromptRequest } from "./prompt-request.ts";
import type { OutputRequest } from "./output-request.ts";

/** Characters that a number, or an entry in addition to its text, counts as. */
const ENTRY_CHARACTERS = 8;

/**
 * Returns `budget` less the characters of a value. Stops as soon as the result is negative, so that a huge value is not read to its end.
 */
function subtractSize(value: unknown, budget: number): number {
  let remaining = budget - ENTRY_CHARACTERS;
  if (typeof value === "string") return remaining - value.length;
  if (typeof value !== "object" || value === null) return remaining;
  for (const key in value) {
    if (remaining < 0) return remaining;
    remaining = subtractSize((value as Readonly<Record<string, unknown>>)[key], remaining - key.length);
  }
  return remaining;
}

/** Whether a value has more than `length` characters, keys and entries counted. */
export function isLongerThan(value: unknown, length: number): boolean {
  return subtractSize(value, length) < 0;
}

/** Whether the texts of a prompt have more than `length` characters. */
export function isLongText({ messages, tools, variables }: PromptRequest, length: number): boolean {
  let remaining = length;
  for (const part of [messages, tools, variables]) remaining = subtractSize(part, remaining);
  return remaining < 0;
}

/** Max characters of an output constraint compiled on the serving thread. Low, because each level of a schema can double the work. */
const SHORT_FORM_LENGTH = 768;

/** Whether compiling a grammar may take long. */
export function isSlowForm({ form, whitespacePattern }: OutputRequest): boolean {
  if (subtractSize(whitespacePattern, subtractSize(form, SHORT_FORM_LENGTH)) < 0) return true;
  // Unicode property classes search all code points; lookaheads and schema patterns may build large automata.
  return form.kind !== "choice" && /\\[pP]|\(\?[=!]|"(?:pattern|format|multipleOf|patternProperties)\\?"/.test(JSON.stringify(form));
}
