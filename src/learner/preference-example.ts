/** Conversion of preference pairs to token sequences. */

import { DataError } from "../base/errors.ts";
import { isTrainedMessage, type ReadPreferencePair } from "../base/trajectory/preference-pair.ts";
import { itemAt } from "../base/util/values.ts";
import type { ChatTokenizer } from "../text/tokenizer/index.ts";
import type { SequencePair } from "./preference.ts";
import { renderedSequence, type RenderedSequence } from "./rendered-sequence.ts";
import { countTrained, fitsContext, requireTokenIds } from "./sequences.ts";
import type { SequenceLimits } from "./types.ts";

/** Result of {@link preferenceSequences}. */
export interface PreferenceSequences {
  /** Sequences of the pair; null if one of them exceeds the context. */
  readonly pair: SequencePair | null;
  /** Trained tokens of a dropped pair. */
  readonly droppedTokens: number;
  /** Bytes of the rendered texts that the vocabulary has no token for. */
  readonly missingBytes: number;
}

/**
 * Renders both conversations of a pair through the chat template. Their assistant messages after the prompt are trained, except messages
 * with `weight: 0`. A pair with a sequence longer than the context is dropped as a whole.
 *
 * @param pair - Validated pair, see `readPreferencePair`.
 * @param tokenizer - Tokenizer of the model, with its chat template.
 * @param limits - Context length and vocabulary size of the model.
 * @param where - Location of the pair for error messages.
 * @throws DataError `E_DATA` for a conversation that the chat template cannot render turn by turn, a continuation without a trained token,
 *   and continuations with equal tokens.
 * @throws the errors of `ChatTokenizer.renderTraining`.
 */
export function preferenceSequences(
  pair: ReadPreferencePair,
  tokenizer: ChatTokenizer,
  limits: SequenceLimits,
  where: string,
): PreferenceSequences {
  const { prompt, tools, chatTemplateKwargs: variables = {}, names } = pair;
  const render = (side: "chosen" | "rejected"): RenderedSequence => {
    const location = `${where}: ${names[side]}`;
    const messages = [...prompt, ...pair[side]];
    const isTrained = (index: number) => index >= prompt.length && isTrainedMessage(itemAt(messages, index));
    const rendered = renderedSequence({ messages, tools, variables, isTrained, location }, tokenizer);
    requireTokenIds(rendered.sequence, limits, location);
    if (countTrained(rendered.sequence) === 0) throw new DataError(`${location}: expected at least one token to train, got none`);
    return rendered;
  };
  const chosen = render("chosen");
  const rejected = render("rejected");
  const sequences = { chosen: chosen.sequence, rejected: rejected.sequence };
  if (hasEqualTokens(sequences.chosen.tokens, sequences.rejected.tokens)) {
    throw new DataError(
      `${where}: expected \`${names.chosen}\` and \`${names.rejected}\` to differ, but the chat template renders them to the same tokens`,
    );
  }
  const fitsInContext = fitsContext(sequences.chosen, limits) && fitsContext(sequences.rejected, limits);
  return {
    pair: fitsInContext ? sequences : null,
    droppedTokens: fitsInContext ? 0 : countTrained(sequences.chosen) + countTrained(sequences.rejected),
    missingBytes: chosen.missingBytes + rejected.missingBytes,
  };
}

/** Whether two sequences have the same token ids. */
function hasEqualTokens(a: Int32Array, b: Int32Array): boolean {
  return a.length === b.length && a.every((id, t) => id === b[t]);
}
