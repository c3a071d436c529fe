/** Pipeline that forwards requests for models on another server, and leaves all others to the service. */
import { errorBody } from "../../schema/index.ts";
import { UnsupportedError } from "../../errors.ts";
import { bodyText } from "../requests.ts";
import { eventStream } from "./answer/chunk-source.ts";
import type { ChatForwarder } from "./forward/forward.ts";
import type { ChatAnswer, ChatCall, ChatPipeline } from "./pipeline.ts";

async function toAnswer(response: Response): Promise<ChatAnswer> {
  if (response.status >= 400)
    return {
      kind: "refusal",
      status: response.status,
      body: errorBody.parse(await response.json()),
      retryAfter: response.headers.get("retry-after"),
    };
  const isStream = response.headers.get("content-type")?.startsWith("text/event-stream") === true;
  return isStream ? { kind: "stream", stream: eventStream(response.body!) } : { kind: "json", body: response.body! };
}

/**
 * Adds a forwarder to a pipeline.
 *
 * @throws UnsupportedError `E_UNSUPPORTED` from `complete` for a prompt without messages, if the other server samples the model.
 */
export function forwardingPipeline(local: ChatPipeline, forwarder: ChatForwarder): ChatPipeline {
  return {
    async complete(call: ChatCall) {
      const { body, contentType, requestId, signal } = call;
      const isJson = /^\s*application\/json\b/i.test(contentType ?? "");
      if (!isJson) return local.complete(call);
      const text = bodyText("chat", body);
      if (call.prompt !== undefined && (await forwarder.samples(text)))
        throw new UnsupportedError(
          "The server that samples this model is asked for chat completions alone; send messages, or use a model that this service samples",
          { param: "prompt" },
        );
      const forwarded = call.prompt === undefined ? await forwarder.forward({ body: text, requestId, signal }) : null;
      return forwarded === null ? local.complete(call) : toAnswer(forwarded);
    },
    render: (call) => local.render(call),
    explain: (error) => local.explain(error),
    requestIdHeader: (given) => local.requestIdHeader(given),
  };
}
