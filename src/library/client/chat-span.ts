/** Tracing of the chat completions that the client requests, with the attributes of OpenTelemetry's conventions for generative AI. */
import type { ChatCompletion, ChatCompletionRequest } from "../../base/schema/index.ts";
import { activeTracing, withSpan } from "../../base/util/tracing.ts";

/** Runs `work`, which requests a chat completion at `url`, in a span if tracing is on. */
export function traceChat(request: ChatCompletionRequest, url: string, work: () => Promise<ChatCompletion>): Promise<ChatCompletion> {
  const tracing = activeTracing();
  if (tracing === null) return work();
  const { model } = request;
  const start = {
    kind: "client",
    attributes: {
      "gen_ai.operation.name": "chat",
      "gen_ai.provider.name": "whetstone",
      "gen_ai.request.model": model ?? undefined,
      "gen_ai.request.temperature": request.temperature ?? undefined,
      "gen_ai.request.max_tokens": request.max_completion_tokens ?? request.max_tokens ?? undefined,
      "server.address": new URL(url).hostname,
    },
  } as const;
  return withSpan(tracing, model === undefined || model === null ? "chat" : `chat ${model}`, start, async (span) => {
    const completion = await work();
    const { id, choices, usage } = completion;
    span.set({
      "gen_ai.response.id": id,
      "gen_ai.response.model": completion.model,
      "gen_ai.response.finish_reasons": choices.map(({ finish_reason: reason }) => reason ?? "unknown"),
      "gen_ai.usage.input_tokens": usage.prompt_tokens,
      "gen_ai.usage.output_tokens": usage.completion_tokens ?? undefined,
    });
    return completion;
  });
}
