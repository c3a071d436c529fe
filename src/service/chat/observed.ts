/** Facts of a locally sampled chat completion for its observers; see `forward/observed.ts` for forwarded ones. */
import type { AdmittedChat, StartedChat } from "../observability/observer.ts";
import type { ChatCall } from "./pipeline.ts";
import type { ChatRequest } from "./request/request.ts";
import type { ChatRun } from "./run.ts";

/** Returns the facts of a chat completion at its start. */
export function startedChat({ scope, source }: ChatCall, request: ChatRequest): StartedChat {
  return {
    scope,
    dialect: source.dialect,
    model: request.model ?? null,
    choices: request.n,
    isStream: request.isStream,
    messages: () => request.messages,
  };
}

/** Returns the facts of a chat completion that waits for the engine. */
export function admittedChat({ plan, shape }: Pick<ChatRun, "plan" | "shape">): AdmittedChat {
  const { temperature, topP, topK, maxTokens, seed } = plan.params;
  return {
    base: plan.policy.base,
    model: shape.head.model,
    responseId: shape.head.id,
    promptTokens: plan.promptIds.length,
    sampling: { temperature, topP, topK, maxTokens, seed },
    stop: plan.request.stop,
  };
}
