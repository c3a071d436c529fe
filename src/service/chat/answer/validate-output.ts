/** Validation of finished texts with a grammar that allows more than their schema. */
import { OutputError } from "../request/errors.ts";
import type { GeneratedChoice } from "../generate/generate.ts";
import type { OutputValidation } from "../generate/output-check.ts";
import type { ChoiceMessage } from "./shape.ts";

/** A finished choice and its validator. */
export interface FinishedOutput {
  readonly choice: Pick<GeneratedChoice, "index" | "text" | "ids">;
  readonly message: Pick<ChoiceMessage, "content" | "toolCalls">;
  /** Returns the first violation of a schema in a text, both JSON; null if the text is valid or is only the beginning of a value. */
  readonly validate: (schema: string, text: string) => string | null | Promise<string | null>;
}

/** Removes the texts of end tokens at the end of a text, which has them if the request includes stop tokens or ignores end tokens. */
function withoutEndTokens(text: string, endTokens: OutputValidation["endTokens"]): string {
  const ends = [...endTokens.values()].filter((end) => end !== "");
  let rest = text;
  for (let end = ends.find((each) => rest.endsWith(each)); end !== undefined; end = ends.find((each) => rest.endsWith(each)))
    rest = rest.slice(0, -end.length);
  return rest;
}

/**
 * Validates a finished choice if its text is complete, that is, if an end token was sampled: the grammar allows none before. A text that
 * ends for any other reason (token limit, stop string, other stop token) is only the beginning of its form and is not validated.
 *
 * @throws {@link OutputError} `E_OUTPUT` for a text that violates its schema.
 */
export async function validateOutput({ check, endTokens }: OutputValidation, { choice, message, validate }: FinishedOutput): Promise<void> {
  const { index, text, ids } = choice;
  if (!ids.some((id) => endTokens.has(id))) return;
  const calls = message.toolCalls.map(({ function: called }) => called);
  const schemas = new Map(check.kind === "calls" ? check.schemas : []);
  const parts =
    check.kind === "calls"
      ? calls.map(({ name, arguments: given }) => ({ schema: schemas.get(name), part: given, name: `the arguments of \`${name}\`` }))
      : [{ schema: check.schema, part: withoutEndTokens(calls[0]?.arguments ?? message.content ?? "", endTokens), name: "the text" }];
  for (const { schema, part, name } of parts) {
    const violation = schema === undefined ? null : await validate(schema, part);
    if (violation === null) continue;
    throw new OutputError(
      `Choice ${index} violates its schema, which its grammar enforces only in part: in ${name}, ${violation}. Send the request again with another seed, or leave the keyword out`,
      text,
    );
  }
}
