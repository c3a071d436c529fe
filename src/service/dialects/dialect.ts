/**
 * The interface of an API dialect, such as the Messages API: every dialect is translated to chat completions. A request passes through three
 * forms:
 *
 * 1. `Translation`: the bodies of its chat completions, as plain data. Large requests are translated on a work thread.
 * 2. `Opened` in `translations.ts`: its parsed chat completions.
 * 3. `OpenRequest`: with the conversion of the answer, by `Dialect.open` on the serving thread. `handler.ts` runs it.
 */
import type { AnswerBuilder, EventShaper, ServerEvent } from "../../dialects/answer-builder.ts";
import type { DialectName } from "../../dialects/index.ts";
import type { ChatCompletion } from "../../base/schema/index.ts";
import type { ChatBody, OpenedChat } from "../chat/request/opened-chat.ts";
import type { RenderedCall } from "../chat/pipeline.ts";
import type { WholeAnswer } from "../chat/answer/whole-answer.ts";

/** A translated request: plain data, which can be passed between threads. */
export interface Translation {
  /** Bodies of chat completions, which run concurrently. */
  readonly bodies: readonly ChatBody[];
}

/**
 * Builder of a response body that is not streamed. Unlike an `AnswerBuilder` of the package's dialects, it can use the JSON of an answer
 * without parsing it.
 */
export interface BodyBuilder {
  /** Takes the answer of a chat completion. `call` is its index; a later one may finish first. */
  push(answer: WholeAnswer, call: number): void | Promise<void>;
  /** Returns the response body, after all answers: a JSON object, or JSON as text or as a stream. */
  end(): unknown;
}

/** Returns the builder of a response to a request with one call. `toBody` converts its completion to an object or to JSON. */
export function singleAnswer(toBody: (completion: ChatCompletion) => unknown): BodyBuilder {
  let body: unknown;
  return {
    async push({ completion }) {
      body = await toBody(completion());
    },
    end: () => body,
  };
}

/** Adapts a builder that needs the answers as objects. */
export function builtAnswer(builder: AnswerBuilder): BodyBuilder {
  return { push: ({ completion }, call) => builder.push(completion(), call), end: () => builder.end() };
}

/** A request that is ready to run, and the conversion of its answer. */
export interface OpenRequest {
  /** Chat completions, which run concurrently. */
  readonly calls: readonly OpenedChat[];
  readonly answer: BodyBuilder;
  /** Converter of a streamed response; `chunks` for the events of chat completions; null for a response that is not streamed. */
  readonly shaper: EventShaper | "chunks" | null;
}

/** Access of a dialect to its caller and to the chat pipeline. */
export interface DialectCaller {
  /** Owner of the responses that the request stores and may read. */
  readonly owner: string;
  /** Opens a chat completion that was made of the request and of stored data. */
  readonly open: (body: ChatBody) => Promise<OpenedChat>;
  /** Renders and encodes the prompt of a chat completion. */
  readonly render: (call: OpenedChat) => Promise<RenderedCall>;
}

/** An API dialect. `T` is its translated request with open chat completions; see `translations.ts`. */
export interface Dialect<T, N extends DialectName = DialectName> {
  readonly name: N;
  /** Completes a translated request. @throws Any error of the request. */
  open(translated: T, caller: DialectCaller): OpenRequest | Promise<OpenRequest>;
  /** Event that keeps an idle connection open. @default a comment */
  readonly ping?: ServerEvent | undefined;
}
