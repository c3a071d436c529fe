/** The interface of an API dialect: translation of requests to chat completions, and of their answers and errors back. */
import type { Members, TranslatedCall } from "../../dialects/index.ts";
import type { ChatCompletion, ChatCompletionChunk, ErrorBody } from "../../schema/index.ts";
import type { DialectName, RenderedCall } from "../chat/pipeline.ts";

/** Server-sent event; `data` is serialized as JSON, except for `[DONE]`. */
export interface ServerEvent {
  /** Value of the `event` line. @default no such line */
  readonly name?: string | undefined;
  readonly data: unknown;
}

/** Converter of the chunks of chat completions to the events of one stream. */
export interface EventShaper {
  /** Returns the events of a chunk. `call` is the index of its chat completion. */
  push(chunk: ChatCompletionChunk, call: number): readonly ServerEvent[];
  /** Returns the last events, after all chunks. */
  end(): readonly ServerEvent[] | Promise<readonly ServerEvent[]>;
  /** Returns the last events of a stream that fails. */
  fail(error: ErrorBody): readonly ServerEvent[];
}

/** A translated request. */
export interface Exchange {
  /** Chat completions, which run concurrently; at least one. */
  readonly calls: readonly TranslatedCall[];
  /** Returns the response body. `completions` has one completion per call. */
  readonly answer: (completions: readonly ChatCompletion[]) => unknown;
  /** Converter of a streamed response; null for a response that is not streamed. */
  readonly shaper: EventShaper | null;
}

/** Caller of a dialect. */
export interface Caller {
  /** Credential that authenticated the request. */
  readonly credential: string;
  /** Renders and encodes the prompt of a chat completion. */
  readonly render: (call: TranslatedCall) => Promise<RenderedCall>;
}

/** An API dialect. */
export interface Dialect {
  readonly name: DialectName;
  /**
   * Translates a request.
   *
   * @param body - Members of the request body.
   * @throws BodyError `E_ARGUMENT` for a malformed body; UnsupportedError `E_UNSUPPORTED` naming an unsupported field or value.
   */
  open(body: Members, caller: Caller): Exchange | Promise<Exchange>;
  /** Event that keeps an idle connection open. @default a comment */
  readonly ping?: ServerEvent | undefined;
}
