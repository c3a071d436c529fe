/**
 * The interface between the routes of all API dialects and the chat pipeline. `ChatService` samples with the engine; `forwardingPipeline`
 * and `sessionPipeline` decorate it.
 */
import { hash } from "node:crypto";
import type { DialectName } from "../../dialects/index.ts";
import type { RequestGroup } from "../../base/util/request-group.ts";
import type { ErrorBody } from "../../base/schema/error.ts";
import type { RequestScope } from "../observability/observer.ts";
import type { ChatTokenizer } from "../../text/tokenizer/index.ts";
import type { Charged } from "../quotas/quotas.ts";
import type { Principal } from "../http/principal.ts";
import type { AnswerStream } from "./answer/chunk-source.ts";
import type { WholeAnswer } from "./answer/whole-answer.ts";
import type { ChatErrorAnswer } from "./request/errors.ts";
import type { OpenedChat, ChatReadOptions } from "./request/opened-chat.ts";

/** Origin of a call, for decorators of a {@link ChatPipeline} that record turns or recognize repeated requests. */
export interface CallSource {
  readonly dialect: DialectName;
  /** SHA-256 of the client's body, hexadecimal; followed by `:` and the index of the call, for the second and later calls of one body. */
  readonly digest: string;
  /** Value of the header `x-stainless-retry-count`: 0 for a first attempt; null without the header. */
  readonly retryCount: number | null;
}

/** Chat completion request whose prompt is rendered. */
export interface RenderCall {
  /** Request, parsed with the {@link ChatPipeline.readOptions} of its principal. */
  readonly request: OpenedChat;
  readonly scope: RequestScope;
  /** The `x-request-id` header; takes precedence over the body's `request_id`. */
  readonly requestId: string | undefined;
  /** Identity of the caller; sampled ids are not shared between principals. */
  readonly principal: Principal;
  /**
   * Name of the conversation. Conversations with different names share no sampled ids, but all of them share the memory budget of their
   * principal. @default the empty name
   */
  readonly conversation?: string | undefined;
  /** Aborted when the client disconnects. */
  readonly signal: AbortSignal;
  /** Group of the call in the engine, see `SamplingOptions.group`. @default a group of its own */
  readonly group?: RequestGroup | undefined;
}

/** Chat completion request. */
export interface ChatCall extends RenderCall {
  readonly source: CallSource;
  /** Accounts that the call is charged to; null for none. */
  readonly charged: Charged | null;
  /** Max output tokens of each choice, to which larger limits of the request are lowered. @default the limit of body, model and context */
  readonly maxOutputTokens?: number | undefined;
}

/** Response to a request: a whole answer, a stream, or the error response of a server to which the request was forwarded. */
export type ChatAnswer =
  | { readonly kind: "whole"; readonly answer: WholeAnswer }
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
   * Checks that a request of a principal could be admitted, before its body is parsed: many rejected requests would otherwise be parsed.
   * Requests that may need no room, such as repeated turns of a session, pass.
   *
   * @throws OverloadedError `E_OVERLOADED` without room for any choice.
   */
  requireRoom(principal: Principal): void;
  /** Returns how the requests of a principal are read. @throws Any error of the principal, for {@link explain}. */
  readOptions(principal: Principal): Promise<ChatReadOptions>;
  /**
   * Answers one request. A stream is returned once the request is admitted; a later failure is an event of the stream.
   *
   * @throws Any error of the request, for {@link explain} to convert into a response.
   */
  complete(call: ChatCall): Promise<ChatAnswer>;
  /** Renders and encodes the prompt of a request. @throws Any error of the request, for {@link explain} to convert into a response. */
  render(call: RenderCall): Promise<RenderedCall>;
  /** Returns status and body of the response to a failure, and logs the error if the response omits its details. */
  explain(error: unknown, scope: RequestScope): ChatErrorAnswer;
}

/**
 * Returns the source of a call. Must be called before the body is parsed, which may transfer its bytes to another thread.
 *
 * @param body - The client's body.
 * @param retryHeader - Value of the header `x-stainless-retry-count`.
 */
export function sourceOf(dialect: DialectName, body: Uint8Array, retryHeader: string | undefined): CallSource {
  const retryCount = retryHeader !== undefined && /^\d{1,9}$/u.test(retryHeader) ? Number(retryHeader) : null;
  return { dialect, digest: hash("sha256", body), retryCount };
}
