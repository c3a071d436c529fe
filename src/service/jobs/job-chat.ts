/** Interface through which training jobs use the chat of the service: jobs do not import `service/chat`. `app.ts` provides the implementation. */
import type { ChatCompletion, ChatCompletionRequest } from "../../base/schema/index.ts";
import type { CallOptions } from "../../engine/port.ts";
import type { Visibility } from "../store/visibility.ts";

/** Rendered prompt of a chat request. */
export interface JobPrompt {
  /** Token ids, shape `[P]`. */
  readonly ids: Int32Array;
  /** Max tokens of prompt and answer. */
  readonly contextLength: number;
}

/** Returns the chat of a job with the models that the job's creator may see. */
export type JobChats = (visibility: Visibility) => JobChat;

/** Chat of the service, as a training job uses it: its rollouts and the requests of its graders. */
export interface JobChat {
  /** Samples with the engine, with the weights of any model name or of a name that `Policies.lend` returned. */
  sample(request: ChatCompletionRequest, options?: CallOptions): Promise<ChatCompletion>;
  /** Answers like the chat route of the service. */
  complete(request: ChatCompletionRequest, options?: CallOptions): Promise<ChatCompletion>;
  /** Renders the prompt of a request. @throws Any error of the request. */
  promptOf(request: ChatCompletionRequest, options?: CallOptions): Promise<JobPrompt>;
}
