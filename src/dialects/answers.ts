/**
 * Schemas of recorded answers, one per dialect. They require fewer fields than the schemas of this service's own answers, because other
 * servers leave out more fields.
 */
import type { z } from "zod";
import { recordedCompletion } from "./chat/recorded-answer.ts";
import { recordedTextCompletion } from "./completions/recorded-answer.ts";
import { recordedGenerated } from "./generate/recorded-answer.ts";
import { recordedMessage } from "./messages/recorded-answer.ts";
import { recordedResponse } from "./responses/recorded-answer.ts";

/** Schemas of recorded answers, by dialect. */
export const ANSWERS = {
  chat: recordedCompletion,
  responses: recordedResponse,
  messages: recordedMessage,
  completions: recordedTextCompletion,
  generate: recordedGenerated,
};

/** Name of a dialect in which turns are sampled. */
export type DialectName = keyof typeof ANSWERS;

/** Recorded answer of a dialect. */
export type RecordedAnswer<Name extends DialectName = DialectName> = z.output<(typeof ANSWERS)[Name]>;
