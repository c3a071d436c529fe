/** Chat completions that the service itself requests, for graders and jobs, answered by the pipeline that answers requests of clients. */
import { EngineError } from "../../base/errors.ts";
import type { ChatCompletion, ChatCompletionRequest } from "../../base/schema/index.ts";
import type { Members } from "../../dialects/index.ts";
import type { Principal } from "../http/principal.ts";
import { sourceOf } from "../chat/pipeline.ts";
import type { OpenedChat } from "../chat/request/opened-chat.ts";
import { DEFAULT_ENTITY } from "../common/names.ts";
import { internalScope } from "../observability/observer.ts";
import type { DialectContext } from "./handler.ts";

type CompletionContext = Pick<DialectContext, "pipeline" | "translator">;

/** Answers a chat request of the service. @throws Any error of the request. */
export type Complete = (request: ChatCompletionRequest, options?: { readonly signal?: AbortSignal | undefined }) => Promise<ChatCompletion>;

/** Opens a chat request of the service; its answer is not streamed. */
export async function openRequest(
  { pipeline, translator }: CompletionContext,
  request: ChatCompletionRequest,
  { principal, signal }: { readonly principal: Principal; readonly signal: AbortSignal },
): Promise<OpenedChat> {
  const members = { ...request, stream: false } as Members;
  return translator.openChat({ members }, await pipeline.readOptions(principal), signal);
}

/**
 * Creates the function that answers chat requests with the rights of a principal.
 *
 * @param context - Pipeline and reader of requests.
 * @param principal - Principal of the requests.
 * @param conversation - Returns the conversation of a request, see `RenderCall.conversation`. @default the empty name for all requests
 */
export function completeWith(context: CompletionContext, principal: Principal, conversation: () => string = () => ""): Complete {
  const { pipeline } = context;
  return async (request, { signal = new AbortController().signal } = {}) => {
    pipeline.requireRoom(principal);
    const opened = await openRequest(context, request, { principal, signal });
    const source = sourceOf("chat", new TextEncoder().encode(JSON.stringify(request)), undefined);
    const scope = internalScope(principal.visibility.entity ?? DEFAULT_ENTITY);
    const call = { request: opened, scope, requestId: undefined, principal, conversation: conversation(), signal, source, charged: null };
    const answer = await pipeline.complete(call);
    if (answer.kind === "whole") return answer.answer.completion();
    if (answer.kind === "refusal") throw new EngineError(`The server of the model refused the request: ${answer.body.error.message}`);
    await answer.stream.chunks().cancel();
    throw new EngineError("Expected a whole answer to a request of the service, got a stream");
  };
}
