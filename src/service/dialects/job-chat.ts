/** Chat of training jobs. */
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
  /** Pipeline of requests. */
  readonly pipeline: ChatPipeline;
  /** Pipeline that samples with the engine alone. */
  readonly local: ChatPipeline;
  readonly translator: Translator;
}

/** Creates the chat of training jobs. No request shares sampled ids with another one, so that its prompt depends on its messages alone. */
export function jobChat({ pipeline, local, translator }: JobChatPipelines) {
  return (visibility: Visibility) => {
    const principal = jobPrincipal(visibility);
    const scope = internalScope(visibility.entity ?? DEFAULT_ENTITY);
    const own = (from: ChatPipeline): Complete => completeWith({ pipeline: from, translator }, principal, () => randomUUID());
    return {
      sample: own(local),
      complete: own(pipeline),
      async promptOf(request: ChatCompletionRequest, { signal = new AbortController().signal }: CallOptions = {}) {
        const opened = await openRequest({ pipeline: local, translator }, request, { principal, signal });
        const call = { request: opened, scope, requestId: undefined, principal, conversation: randomUUID(), signal };
        const { ids, contextLength } = await local.render(call);
        return { ids, contextLength };
      },
    };
  };
}
