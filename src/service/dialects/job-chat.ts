/** Chat requests of training jobs, which go through the pipelines that answer requests of clients. */
import { randomUUID } from "node:crypto";
import type { ChatCompletionRequest } from "../../base/schema/index.ts";
import type { CallOptions } from "../../engine/port.ts";
import type { ChatPipeline } from "../chat/pipeline.ts";
import { jobPrincipal } from "../http/principal.ts";
import type { Visibility } from "../store/visibility.ts";
import { internalScope } from "../observability/observer.ts";
import { DEFAULT_ENTITY } from "../common/names.ts";
import { completeWith, openRequest, type Complete } from "./complete.ts";
import type { Translator } from "./translator.ts";

/** Pipelines of {@link jobChat}. */
export interface JobChatPipelines {
  /** Pipeline of the requests of clients, which may forward a request to another server. */
  readonly pipeline: ChatPipeline;
  /** Pipeline that samples with the engine of this service alone. */
  readonly local: ChatPipeline;
  readonly translator: Translator;
}

/**
 * Creates the chat of training jobs, per visibility of a job: `sample` answers with the engine alone, `complete` as for clients, and `promptOf`
 * renders a prompt. Each request is a conversation of its own and shares no sampled ids with another one, so that its prompt depends on its
 * messages alone.
 */
export function jobChat({ pipeline, local, translator }: JobChatPipelines) {
  return (visibility: Visibility) => {
    const principal = jobPrincipal(visibility);
    const scope = internalScope(visibility.entity ?? DEFAULT_ENTITY);
    const completeIn = (used: ChatPipeline): Complete => completeWith({ pipeline: used, translator }, principal, () => randomUUID());
    return {
      sample: completeIn(local),
      complete: completeIn(pipeline),
      async promptOf(request: ChatCompletionRequest, { signal = new AbortController().signal }: CallOptions = {}) {
        const opened = await openRequest({ pipeline: local, translator }, request, { principal, signal });
        const call = { request: opened, scope, requestId: undefined, principal, conversation: randomUUID(), signal };
        const { ids, contextLength } = await local.render(call);
        return { ids, contextLength };
      },
    };
  };
}
