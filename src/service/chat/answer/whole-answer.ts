/** Whole answers, as opposed to streams. */
import type { ChatCompletion } from "../../../base/schema/index.ts";
import type { GeneratedChoice } from "../generate/generate.ts";
import { completionPieces, countLogprobs, toCompletion, type ChoiceMessage, type ShapeOptions } from "./shape.ts";
import { textStream } from "./text-stream.ts";

/** Answer that is not streamed. Each form is made only if it is used. */
export interface WholeAnswer {
  /** Returns the completion as an object, for translation into another dialect and for records. */
  readonly completion: () => ChatCompletion;
  /** Returns the completion as JSON; a long one as a stream. */
  readonly json: () => string | ReadableStream<Uint8Array>;
}

/** Maximum number of log-probabilities in a response that is written as one string; larger responses are streamed in pieces. */
const MAX_WHOLE_LOGPROBS = 4096;

/**
 * Returns the answer with these choices.
 *
 * @param messages - Shape `[n]`, one per choice.
 */
export function wholeAnswer(choices: readonly GeneratedChoice[], messages: readonly ChoiceMessage[], options: ShapeOptions): WholeAnswer {
  return {
    completion: () => toCompletion(choices, messages, options),
    json() {
      const pieces = completionPieces(choices, messages, options);
      return countLogprobs(choices) > MAX_WHOLE_LOGPROBS ? textStream(pieces) : [...pieces].join("");
    },
  };
}
