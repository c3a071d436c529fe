/** The interface between the routes of all API dialects and the chat pipeline. */
import { createHash } from "node:crypto";
import type { RawPrompt } from "../../dialects/index.ts";
import type { ErrorBody } from "../../schema/error.ts";
import type { ChatTokenizer } from "../../tokenizer/index.ts";
import type { AnswerStream } from "./answer/chunk-source.ts";
import type { ChatErrorAnswer } from "./request/errors.ts";

/** API dialects, by the path of their main route. */
export type DialectName = "chat" | "responses" | "messages" | "completions" | "generate" | "tokenize";

/** Origin of a call, for decorators of a {@link ChatPipeline} that record turns or recognize repeated requests. */
export interface CallSource {
  readonly dialect: DialectName;
  /** SHA-256 of the client's body, hexadecimal; followed by `:` and the index of the call, for the second and later calls of one body. */
  readonly digest: string;
  /** Value of the header `x-stainless-retry-count`: 0 for a first attempt; null without the header. */
  readonly retryCount: number | null;
}

/** Unparsed chat completion request. */
export interface ChatCall {
  /** Bytes of a chat completion body, to which other dialects translate their bodies; the pipeline takes ownership. */
  readonly body: Uint8Array;
  readonly contentType: string | undefined;
  /** The `x-request-id` header; takes precedence over the body's `request_id`. */
  readonly requestId: string | undefined;
  /** Credential that authenticated the request; sampled ids are not shared between credentials. */
  readonly credential: string;
  /** Conversations with different names share no sampled ids, and together the memory of their credential. @default the empty name */
  readonly conversation?: string | undefined;
  /** Aborted when the client disconnects. */
  readonly signal: AbortSignal;
  readonly source: CallSource;
  /** Prompt of a body without `messages`. @default the rendered messages of the body */
  readonly prompt?: RawPrompt | undefined;
}

/** Response to a request: a whole body, a stream, or the error response of a server to which the request was forwarded. */
export type ChatAnswer =
  | { readonly kind: "json"; readonly body: string | ReadableStream<Uint8Array> }
  | { readonly kind: "stream"; readonly stream: AnswerStream }
  | { readonly kind: "refusal"; readonly status: number; readonly body: ErrorBody; readonly retryAfter: string | null };

/** Prompt of a request that is not sampled. */
export interface RenderedCall {
  /** Shape `[P]`, P ≥ 1. */
  readonly ids: Int32Array;
  /** Max tokens of prompt and output of the model. */
  readonly contextLength: number;
  readonly tokenizer: ChatTokenizer;
}

/** Pipeline of chat completions, which the routes of all dialects use. A decorator has the same interface. */
export interface ChatPipeline {
  /**
   * Answers one request. A stream is returned once the request is admitted; a later failure is an event of the stream.
   *
   * @throws Any error of the request, for {@link explain} to convert into a response.
   */
  complete(call: ChatCall): Promise<ChatAnswer>;
  /** Renders and encodes the prompt of a request. @throws Any error of the request, for {@link explain} to convert into a response. */
  render(call: ChatCall): Promise<RenderedCall>;
  /** Returns status and body of the response to a failure, and logs the error if the response omits its details. */
  explain(error: unknown): ChatErrorAnswer;
  /** Returns the response header with the request's id; empty if the service does not send one. */
  requestIdHeader(given: string | undefined): Readonly<Record<string, string>>;
}

/**
 * Returns the source of a call. Must be called before the body is passed to a pipeline, which takes ownership of its bytes.
 *
 * @param body - The client's body.
 * @param retryHeader - Value of the header `x-stainless-retry-count`.
 */
export function sourceOf(dialect: DialectName, body: Uint8Array, retryHeader: string | undefined): CallSource {
  const retryCount = retryHeader !== undefined && /^\d{1,9}$/u.test(retryHeader) ? Number(retryHeader) : null;
  return { dialect, digest: createHash("sha256").update(body).digest("hex"), retryCount };
}
