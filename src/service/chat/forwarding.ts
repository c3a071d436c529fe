/** Decorator of the chat pipeline that forwards requests for models on an upstream, and leaves all others to the local pipeline. */
import type { ChatCompletion } from "../../base/schema/index.ts";
import { UnsupportedError } from "../../base/errors.ts";
import { eventStream } from "./answer/chunk-source.ts";
import type { ForwardedAnswer } from "./forward/answers.ts";
import type { ChatForwarder } from "./forward/forward.ts";
import type { ChatAnswer, ChatCall, ChatPipeline } from "./pipeline.ts";

/** Converts the answer of the other server to an answer of the pipeline. */
function toAnswer(forwarded: ForwardedAnswer): ChatAnswer {
  switch (forwarded.kind) {
    case "refusal":
      return forwarded;
    case "stream":
      return { kind: "stream", stream: eventStream(forwarded.events) };
    case "whole":
      return {
        kind: "whole",
        answer: { completion: () => forwarded.members as unknown as ChatCompletion, json: () => forwarded.json },
      };
  }
}

/**
 * Adds a forwarder to a pipeline.
 *
 * @throws UnsupportedError `E_UNSUPPORTED` from `complete` for a prompt without messages, if the other server samples the model.
 */
export function forwardingPipeline(local: ChatPipeline, forwarder: ChatForwarder): ChatPipeline {
  return {
    // The other server has its own limits; the local pipeline checks its requests when it takes them.
    requireRoom: () => undefined,
    async readOptions(principal) {
      return { ...(await local.readOptions(principal)), isForwardable: true };
    },
    async complete(call: ChatCall) {
      const { request, requestId, scope, principal, signal, maxOutputTokens, charged, source, conversation } = call;
      const { forwardable, prompt, turn } = request;
      if (forwardable === null) return local.complete(call);
      if (prompt !== undefined && (await forwarder.samples(forwardable, principal)))
        throw new UnsupportedError(
          "The server that samples this model is asked for chat completions alone; send messages, or use a model that this service samples",
          { param: "prompt" },
        );
      if (prompt !== undefined) return local.complete(call);
      const forwarded = await forwarder.forward({
        request: forwardable,
        requestId,
        scope,
        principal,
        dialect: source.dialect,
        session: conversation ?? null,
        charged,
        signal,
        limits: turn?.limits,
        maxOutputTokens,
      });
      return forwarded === null ? local.complete(call) : toAnswer(forwarded);
    },
    render: (call) => local.render(call),
    explain: (error, scope) => local.explain(error, scope),
  };
}
