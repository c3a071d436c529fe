/** Estimates, without expensive work, of whether a request takes too long for the serving thread. */
import type { PromptRequest } from "./prompt-request.ts";
import type { OutputRequest } from "./output-request.ts";

/** Characters that a number, or an entry in addition to its text, counts as. */
const ENTRY_CHARACTERS = 8;

/** Returns `left` less the characters of a value. Stops as soon as the result is negative, so that a huge value is not read to its end. */
function countDown(value: unknown, left: number): number {
  if (typeof value === "string") return left - value.length - ENTRY_CHARACTERS;
  if (typeof value !== "object" || value === null) return left - ENTRY_CHARACTERS;
  let rest = left - ENTRY_CHARACTERS;
  for (const key in value) {
    if (rest < 0) return rest;
    rest = countDown((value as Readonly<Record<string, unknown>>)[key], rest - key.length);
  }
  return rest;
}

/** Whether a value has more than `length` characters, keys and entries counted. */
export function isLongerThan(value: unknown, length: number): boolean {
  return countDown(value, length) < 0;
}

/** Whether the texts of a prompt have more than `length` characters. */
export function isLongText({ messages, tools, variables }: PromptRequest, length: number): boolean {
  return countDown(variables, countDown(tools, countDown(messages, length))) < 0;
}

/** Max characters of an output constraint compiled on the serving thread. Low, because each level of a schema can double the work. */
const SHORT_FORM_LENGTH = 768;

/** Whether compiling a grammar may take long. */
export function isSlowForm({ form, whitespacePattern }: OutputRequest): boolean {
  if (countDown(whitespacePattern, countDown(form, SHORT_FORM_LENGTH)) < 0) return true;
  // Unicode property classes search all code points; lookaheads and schema patterns may build large automata.
  return form.kind !== "choice" && /\\[pP]|\(\?[=!]|"(?:pattern|format|multipleOf|patternProperties)\\?"/.test(JSON.stringify(form));
}
