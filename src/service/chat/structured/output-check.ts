/** Validation of finished texts with a grammar that allows more than their schema. */
import { OutputError } from "../errors.ts";
import type { GeneratedChoice } from "../generate.ts";
import type { ChoiceMessage } from "../shape.ts";

/** Schemas, as JSON texts, that a finished text must be validated against. Plain data. */
export type OutputCheck =
  /** Schema of the whole text, or of the arguments of the single forced call. */
  | { readonly kind: "json"; readonly schema: string }
  /** Schemas of the arguments of each call, by function name. */
  | { readonly kind: "calls"; readonly schemas: Readonly<Record<string, string>> };

/** Returns the schemas of a check. */
export function schemasOf(check: OutputCheck): readonly string[] {
  return check.kind === "json" ? [check.schema] : Object.values(check.schemas);
}

/** A finished choice and its validator. */
export interface FinishedOutput {
  readonly choice: Pick<GeneratedChoice, "index" | "text" | "finishReason">;
  readonly message: Pick<ChoiceMessage, "content" | "toolCalls">;
  /** Returns the first violation of a schema in a text, both JSON; null if the text is valid or is only the beginning of a value. */
  readonly validate: (schema: string, text: string) => string | null | Promise<string | null>;
}

/**
 * Validates a finished choice. A text that was cut short is only the beginning of its form and is not validated.
 *
 * @throws {@link OutputError} `E_OUTPUT` for a text that violates its schema.
 */
export async function validateOutput(check: OutputCheck, { choice, message, validate }: FinishedOutput): Promise<void> {
  const { index, text, finishReason } = choice;
  if (finishReason !== "stop") return;
  const calls = message.toolCalls.map(({ function: called }) => called);
  const parts =
    check.kind === "calls"
      ? calls.map(({ name, arguments: given }) => ({ schema: check.schemas[name], part: given, name: `the arguments of \`${name}\`` }))
      : [{ schema: check.schema, part: calls[0]?.arguments ?? message.content ?? "", name: "the text" }];
  for (const { schema, part, name } of parts) {
    const violation = schema === undefined ? null : await validate(schema, part);
    if (violation === null) continue;
    throw new OutputError(
      `Choice ${index} violates its schema, which its grammar enforces only in part: in ${name}, ${violation}. Send the request again with another seed, or leave the keyword out`,
      text,
    );
  }
}
