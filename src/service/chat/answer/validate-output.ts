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
  const endTexts = [...endTokens.values()].filter((endText) => endText !== "");
  let remaining = text;
  for (;;) {
    const endText = endTexts.find((each) => remaining.endsWith(each));
    if (endText === undefined) return remaining;
    remaining = remaining.slice(0, -endText.length);
  }
}

/** Part of an output that has a schema. */
interface ValidatedPart {
  /** JSON of the schema; undefined for a part that any text satisfies. */
  readonly schema: string | undefined;
  readonly text: string;
  /** Name of the part for messages. */
  readonly name: string;
}

/** Returns the parts of an output that have a schema: the arguments of each call, or the whole text. */
function partsOf({ check, endTokens }: OutputValidation, { content, toolCalls }: FinishedOutput["message"]): ValidatedPart[] {
  const calls = toolCalls.map(({ function: called }) => called);
  if (check.kind === "calls") {
    const schemas = new Map(check.schemas);
    return calls.map(({ name, arguments: text }) => ({ schema: schemas.get(name), text, name: `the arguments of \`${name}\`` }));
  }
  const text = calls[0]?.arguments ?? content ?? "";
  return [{ schema: check.schema, text: withoutEndTokens(text, endTokens), name: "the text" }];
}

/**
 * Validates a finished choice if its text is complete, that is, if an end token was sampled: the grammar allows none before. A text that
 * ends for any other reason (token limit, stop string, other stop token) is only the beginning of its form and is not validated.
 *
 * @throws {@link OutputError} `E_OUTPUT` for a text that violates its schema.
 */
export async function validateOutput(validation: OutputValidation, { choice, message, validate }: FinishedOutput): Promise<void> {
  if (!choice.ids.some((id) => validation.endTokens.has(id))) return;
  for (const { schema, text, name } of partsOf(validation, message)) {
    const violation = schema === undefined ? null : await validate(schema, text);
    if (violation === null) continue;
    throw new OutputError(
      `Choice ${choice.index} violates its schema, which its grammar enforces only in part: in ${name}, ${violation}. Send the request again with another seed, or leave the keyword out`,
      choice.text,
    );
  }
}
