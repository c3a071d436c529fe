/**
 * Interfaces that translate chat completions back to a dialect: `AnswerBuilder` a whole response, `EventShaper` a stream. A request is one
 * or more chat completions (its calls; a text completion has one per prompt), which run concurrently.
 */
import type { ChatCompletion, ChatCompletionChunk, ErrorBody } from "../base/schema/index.ts";

/** Server-sent event; `data` is serialized as JSON, except for `[DONE]`. */
export interface ServerEvent {
  /** Value of the `event` line. @default no such line */
  readonly name?: string | undefined;
  readonly data: unknown;
}

/** Converter of the chunks of chat completions to the events of one stream. */
export interface EventShaper {
  /** Returns the events of a chunk. `call` is the index of its chat completion; chunks of several calls are interleaved. */
  push(chunk: ChatCompletionChunk, call: number): readonly ServerEvent[];
  /** Returns the last events, after all chunks. */
  end(): readonly ServerEvent[] | Promise<readonly ServerEvent[]>;
  /** Returns the last events of a stream that fails; no other method is called afterwards. */
  fail(error: ErrorBody): readonly ServerEvent[];
}

/** Builder of a response body that is not streamed. The service uses it through `builtAnswer`. */
export interface AnswerBuilder {
  /** Takes a finished chat completion. `call` is its index; a later one may finish first. */
  push(completion: ChatCompletion, call: number): void | Promise<void>;
  /** Returns the response body, after all completions: a JSON object, or JSON as text or as a stream. */
  end(): unknown;
}
