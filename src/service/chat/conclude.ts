/** End of a choice: its message is parsed and validated, and its ids are remembered for the request that sends the message back. */
import type { ServiceLogger } from "../common/logger.ts";
import { requestField, type RequestScope } from "../observability/observer.ts";
import { returningMessages } from "./answer/returning-messages.ts";
import { parseMessage, type ChoiceMessage } from "./answer/shape.ts";
import { validateOutput } from "./answer/validate-output.ts";
import type { GeneratedChoice } from "./generate/generate.ts";
import { rememberTurn, terminatorsOf } from "./prompt/render.ts";
import type { ChatRun } from "./run.ts";
import { hasReasoningTags } from "./text/reasoning.ts";
import type { ChatWork } from "./work.ts";

/** Context of {@link concludeChoice}. */
interface ConcludeContext {
  readonly work: Pick<ChatWork, "validate">;
  readonly logger: ServiceLogger | undefined;
  readonly scope: RequestScope;
}

/**
 * Parses the message of a finished choice and remembers its ids for the request that sends the message back.
 *
 * @throws OutputError `E_OUTPUT` for a text that violates its schema.
 */
export async function concludeChoice(
  run: ChatRun,
  choice: GeneratedChoice,
  { work, logger, scope }: ConcludeContext,
): Promise<ChoiceMessage> {
  const message = parseMessage(choice, run.shape);
  if (run.check !== null) await validateOutput(run.check, { choice, message, validate: (schema, text) => work.validate(schema, text) });
  const { tokenizer, prompt, plan } = run;
  const hasTags = hasReasoningTags(prompt.text, choice.text, terminatorsOf(tokenizer));
  // A prompt without messages is continued as text.
  const rewritten = plan.request.messages.length === 0 ? [] : returningMessages(message, choice.text, hasTags);
  try {
    await rememberChoice(run, choice, rewritten);
  } catch (error) {
    // The template may reject the model's own output; the response is still valid, only its ids cannot be reused.
    logger?.warn("A sampled turn could not be remembered for splicing", { ...requestField(scope), error: String(error) });
  }
  return message;
}

/**
 * Remembers the ids of a choice, see {@link rememberTurn}.
 *
 * @param rewritten - Messages as which the choice may be sent back.
 */
async function rememberChoice(run: ChatRun, choice: GeneratedChoice, rewritten: ReturnType<typeof returningMessages>): Promise<void> {
  const { tokenizer, encoder, prompt, plan, splice } = run;
  const { request, keepsSpecialTokens } = plan;
  const { closedBy } = choice;
  const hasEndToken = closedBy !== null && tokenizer.eosTokenIds.includes(closedBy);
  // The text of a beam never includes its end token.
  const showsEndToken = hasEndToken && request.includeStopStrInOutput && keepsSpecialTokens && !request.useBeamSearch;
  // When a text with its end token is sent back, the template adds a second one, so that the ids never match.
  if (showsEndToken) return;
  const turn = { text: choice.text, ids: choice.ids, closedBy: hasEndToken ? closedBy : null, rewritten };
  await rememberTurn(encoder, request, prompt, turn, splice);
}
