/** Assembly of a streamed answer from its events: the answer that the same request would have without streaming. */

/** Assembler of one stream; `createAssembler` creates one for the dialect of a request. */
export interface AnswerAssembler {
  /** Adds the parsed payload of a server-sent event. @throws ProtocolError `E_PROTOCOL` for an event that the dialect does not have. */
  push(event: unknown): void;
  /** Whether no later event can change the sampled turn. */
  readonly isComplete: boolean;
  /** Returns the answer so far, which the caller validates; null if nothing of it has arrived. */
  toAnswer(): unknown;
}
