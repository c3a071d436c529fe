/** The interface of an API dialect: translation of requests to chat completions, and of their answers and errors back. */
import type { RawPrompt } from "../../dialects/index.ts";
import type { ChatCompletion, ChatCompletionChunk, ErrorBody } from "../../schema/index.ts";
import type { DialectName, RenderedCall } from "../chat/pipeline.ts";

/** Chat completion to which a request is translated. */
export interface DialectCall {
  /** Body of the chat completion, JSON in a buffer of its own; the pipeline takes ownership. */
  readonly body: Uint8Array;
  /** Prompt of a body without `messages`. @default the rendered messages */
  readonly prompt?: RawPrompt | undefined;
}

/** A translated request: plain data, which can be passed between threads. */
export interface Translation {
  /** Chat completions, which run concurrently. */
  readonly calls: readonly DialectCall[];
}

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

/** A request and the conversion of its answer. */
export interface Exchange extends Translation {
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
  readonly render: (call: DialectCall) => Promise<RenderedCall>;
}

/** An API dialect. `T` is its translated request; see `translations.ts`. */
export interface Dialect<T extends Translation, N extends DialectName = DialectName> {
  readonly name: N;
  /** Completes a translated request. @throws Any error of the request. */
  open(translated: T, caller: Caller): Exchange | Promise<Exchange>;
  /** Event that keeps an idle connection open. @default a comment */
  readonly ping?: ServerEvent | undefined;
}
