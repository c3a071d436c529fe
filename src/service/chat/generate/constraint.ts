/** Output constraint of a request: the grammar that the engine enforces while it samples, and the validation of the finished text. */
import type { GrammarParams } from "../../../engine/port.ts";
import { UnsupportedError } from "../../../base/errors.ts";
import type { ChatTokenizer } from "../../../text/tokenizer/index.ts";
import { REASONING_END } from "../text/reasoning.ts";
import type { ChatRequest } from "../request/request.ts";
import type { OutputValidation } from "./output-check.ts";
import type { OutputGrammars } from "./output-grammar.ts";

/** Context of {@link constraintOf}. */
export interface ConstraintContext {
  readonly grammars: OutputGrammars;
  /** Whether the engine supports constraints. */
  readonly canConstrain: boolean;
  readonly tokenizer: ChatTokenizer;
  /** Whether the text begins with reasoning, which is unconstrained. */
  readonly shouldParseReasoning: boolean;
  /** Aborted when the request ends early. */
  readonly signal?: AbortSignal | undefined;
}

/** Constraint of a request. */
export interface OutputConstraint {
  /** Grammar and end tokens, for the engine. */
  readonly params: GrammarParams;
  /** Validation of the finished text; null if the grammar enforces everything. */
  readonly check: OutputValidation | null;
}

/**
 * Returns the constraint of a request; null if it has none, and with beam search, which ignores constraints.
 *
 * Once the text is complete, only the model's end tokens can follow, even if the request ignores end tokens.
 *
 * @throws ArgumentError `E_ARGUMENT` for a malformed form.
 * @throws UnsupportedError `E_UNSUPPORTED` for a form that cannot be enforced, an engine without constraints, and a model without end
 *   tokens.
 */
export async function constraintOf(
  request: Pick<ChatRequest, "output" | "useBeamSearch" | "stopTokenIds">,
  { grammars, canConstrain, tokenizer, shouldParseReasoning, signal }: ConstraintContext,
): Promise<OutputConstraint | null> {
  const { output, useBeamSearch, stopTokenIds } = request;
  if (output === null || useBeamSearch) return null;
  if (!canConstrain)
    throw new UnsupportedError(
      "The engine of this model cannot hold its output to a form: leave out `response_format`, `structured_outputs` and a `tool_choice` that forces calls",
    );
  const { grammar, check } = await grammars.compile(output, { reasoningEnd: shouldParseReasoning ? REASONING_END : null }, signal);
  const endTokenIds = tokenizer.eosTokenIds.length > 0 ? tokenizer.eosTokenIds : stopTokenIds;
  if (endTokenIds.length === 0)
    throw new UnsupportedError("The model has no end token, so that an output that must have a form cannot end; send `stop_token_ids`");
  if (check === null) return { params: { grammar, endTokenIds }, check };
  const endTokens = new Map(endTokenIds.map((id) => [id, tokenizer.decode([id], { skipSpecialTokens: false })]));
  return { params: { grammar, endTokenIds }, check: { check, endTokens } };
}
