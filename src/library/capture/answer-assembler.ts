/** Assembly of a streamed answer from its events: the answer that the same request would have without streaming. */

/** Assembler of one stream. */
export interface AnswerAssembler {
  /** Adds the payload of an event. */
  push(event: unknown): void;
  /** Whether no later event can change the sampled turn. */
  readonly isComplete: boolean;
  /** Returns the answer so far; null if nothing of it has arrived. */
  toAnswer(): unknown;
}
