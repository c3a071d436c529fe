/** Whether a request asks for more work than the serving thread may do at once; found without doing much of it. */
import type { PromptRequest } from "../chat/prompt-request.ts";
import type { OutputRequest } from "../chat/structured/output-request.ts";

/** What a number, a key or an entry counts, in characters. */
const ENTRY = 8;

/** Counts the characters of a value down from `left`; below 0 it stops. */
function countDown(value: unknown, left: number): number {
  if (typeof value === "string") return left - value.length - ENTRY;
  if (typeof value !== "object" || value === null) return left - ENTRY;
  let rest = left - ENTRY;
  for (const key in value) {
    if (rest < 0) return rest;
    rest = countDown((value as Readonly<Record<string, unknown>>)[key], rest - key.length);
  }
  return rest;
}

/** Whether the texts that a prompt is made of have more than `length` characters. */
export function isLongText({ messages, tools, variables }: PromptRequest, length: number): boolean {
  return countDown(variables, countDown(tools, countDown(messages, length))) < 0;
}

/** Characters up to which the form of an output is made into a grammar at once. Every level of a schema can double the work. */
const SHORT_FORM_LENGTH = 768;

/** Whether making a grammar may take long. */
export function isSlowForm({ form, whitespacePattern }: OutputRequest): boolean {
  if (countDown(whitespacePattern, countDown(form, SHORT_FORM_LENGTH)) < 0) return true;
  // Properties of characters are looked up among all there are; lookaheads, and patterns of schemas, may take large automata.
  return form.kind !== "choice" && /\\[pP]|\(\?[=!]|"(?:pattern|format|multipleOf|patternProperties)\\?"/.test(JSON.stringify(form));
}
