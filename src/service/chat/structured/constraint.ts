/** What the engine is told of the form of an output. */
import type { GrammarParams } from "../../../engine/port.ts";
import { UnsupportedError } from "../../../errors.ts";
import type { ChatTokenizer } from "../../../tokenizer/index.ts";
import { REASONING_END } from "../reasoning.ts";
import type { ChatRequest } from "../request.ts";
import type { OutputCheck } from "./output-check.ts";
import type { OutputGrammars } from "./output-grammar.ts";

/** What a constraint depends on besides the request. */
export interface ConstraintContext {
  readonly grammars: OutputGrammars;
  /** Whether the engine carries constraints out. */
  readonly canConstrain: boolean;
  readonly tokenizer: ChatTokenizer;
  /** Whether the text begins with reasoning, which is free. */
  readonly shouldParseReasoning: boolean;
}

/** The constraint of a request. */
export interface OutputConstraint {
  /** For the engine. */
  readonly params: GrammarParams;
  /** Schemas for which the finished text must be validated; null if the grammar enforces everything. */
  readonly check: OutputCheck | null;
}

/**
 * The constraint of a request; null where it has none, and with beam search, which looks at no such thing.
 *
 * Where the text is complete the model's end tokens can follow and nothing else, also where they are not to end the output.
 *
 * @throws ArgumentError `E_ARGUMENT`, UnsupportedError `E_UNSUPPORTED` for a form that is not well-formed or cannot be enforced.
 */
export async function constraintOf(
  request: Pick<ChatRequest, "output" | "beamSearch" | "stopTokenIds">,
  { grammars, canConstrain, tokenizer, shouldParseReasoning }: ConstraintContext,
): Promise<OutputConstraint | null> {
  const { output, beamSearch, stopTokenIds } = request;
  if (output === null || beamSearch !== null) return null;
  if (!canConstrain)
    throw new UnsupportedError(
      "The engine of this model cannot hold its output to a form: leave out `response_format`, `structured_outputs` and a `tool_choice` that forces calls",
    );
  const { grammar, check } = await grammars.compile(output, { reasoningEnd: shouldParseReasoning ? REASONING_END : null });
  const endTokenIds = tokenizer.eosTokenIds.length > 0 ? tokenizer.eosTokenIds : stopTokenIds;
  if (endTokenIds.length === 0)
    throw new UnsupportedError("The model has no end token, so that an output that must have a form cannot end; send `stop_token_ids`");
  return { params: { grammar, endTokenIds }, check };
}
