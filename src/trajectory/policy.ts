import type { ChatCompletion, ChatCompletionRequest } from "../schema/index.ts";

/**
 * A fixed set of weights that answers chat requests. A value: code that holds one cannot drift to another step by accident.
 *
 * `whetstone` makes them with `model.policy(step)`; anything with this shape can be sampled from.
 */
export interface Policy {
  /** What goes into a request's `model`, e.g. `team/demo/reverse:step7`. */
  readonly id: string;
  /** The checkpoint's step; null for weights that have none, such as a base model. */
  readonly step: number | null;
  /** Whether nobody keeps what `complete` gave: then a trajectory need not copy it, which takes longer than reading it. @default false */
  readonly handsOver?: boolean | undefined;
  /** Sends one request; `model` in it is already `id`. */
  complete(request: ChatCompletionRequest, options?: { readonly signal?: AbortSignal | undefined }): Promise<ChatCompletion>;
}

/** The step that a response says it came from (`…:step7` gives 7), else null. */
export function stepOf(model: string): number | null {
  const match = /:step(\d+)$/.exec(model);
  return match === null ? null : Number(match[1]);
}
