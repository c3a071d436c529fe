/** Rendering of a conversation through the chat template to one token sequence. */

import { DataError } from "../base/errors.ts";
import type { RequestMessage, Tool } from "../base/schema/index.ts";
import type { ChatMessage, ChatTokenizer } from "../text/tokenizer/index.ts";
import type { TokenSequence } from "./types.ts";

/** Conversation to render, and its location for error messages. */
export interface TrainedConversation {
  readonly messages: readonly RequestMessage[];
  readonly tools: readonly Tool[] | null | undefined;
  /** Variables of the chat template. */
  readonly variables: Readonly<Record<string, unknown>>;
  /** Whether the assistant message at an index is trained; others are context. */
  readonly isTrained: (index: number) => boolean;
  readonly location: string;
}

/** Sequence of {@link renderedSequence}. */
export interface RenderedSequence {
  readonly sequence: TokenSequence;
  /** Bytes of the rendered text that the vocabulary has no token for. */
  readonly missingBytes: number;
}

/**
 * Renders a conversation with the trained assistant messages in its mask.
 *
 * @throws DataError `E_DATA` with the location, for a variable that the chat template does not read, and a conversation that it cannot render
 *   turn by turn.
 * @throws the other errors of `ChatTokenizer.renderTraining`.
 */
export function renderedSequence(
  { messages, tools, variables, isTrained, location }: TrainedConversation,
  tokenizer: ChatTokenizer,
): RenderedSequence {
  const unused = Object.keys(variables).find((name) => !tokenizer.readsVariable(name, { tools }));
  if (unused !== undefined) {
    throw new DataError(
      `${location}: expected variables in \`chat_template_kwargs\` that the chat template reads, got \`${unused}\`. Correct its name, or leave it out.`,
    );
  }
  try {
    const { ids, mask, missingBytes } = tokenizer.renderTraining(messages as readonly ChatMessage[], { tools, variables, isTrained });
    // Nothing predicts the first token, so the first token of an answer at the very start is not trained.
    if (mask[0] === 1) mask[0] = 0;
    return { sequence: { tokens: ids, mask }, missingBytes };
  } catch (error) {
    if (error instanceof DataError) throw new DataError(`${location}: ${error.message}`, { cause: error });
    throw error;
  }
}
