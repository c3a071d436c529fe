/** Chat requests of the playground: streaming of an answer, and its collection chunk by chunk. */
import { createParser } from "eventsource-parser";
import type { ChatCompletionRequest, ErrorBody, LogprobEntry, RequestMessage } from "../../../base/schema/index.ts";
import { RequestError, send } from "./requests.ts";

/** Answer of a model as it streams. */
export interface Answer {
  readonly text: string;
  readonly reasoning: string;
  /** Tool calls; `args` is the JSON received so far. */
  readonly calls: readonly { readonly id: string | null; readonly name: string; readonly args: string }[];
  /** Sampled tokens with their alternatives. */
  readonly entries: readonly LogprobEntry[];
  /** Reason for the end; null while the answer streams. */
  readonly finish: string | null;
  /** Name of the model with the step of the checkpoint. */
  readonly model: string | null;
}

/** Answer without any token. */
export const EMPTY_ANSWER: Answer = { text: "", reasoning: "", calls: [], entries: [], finish: null, model: null };

/** Part of a chunk that an answer needs. */
interface Chunk {
  readonly model?: string;
  readonly choices?: readonly {
    readonly delta?: {
      readonly content?: string | null;
      readonly reasoning?: string | null;
      readonly tool_calls?:
        | readonly {
            readonly index?: number;
            readonly id?: string | null;
            readonly function?: { readonly name?: string | null; readonly arguments?: string | null };
          }[]
        | null;
    };
    readonly logprobs?: { readonly content?: readonly LogprobEntry[] | null } | null;
    readonly finish_reason?: string | null;
  }[];
}

/** Returns the answer with the part that a chunk of the stream adds. */
export function addChunk(answer: Answer, { model, choices }: Chunk): Answer {
  const [choice] = choices ?? [];
  const answerWithModel = { ...answer, model: model ?? answer.model };
  if (choice === undefined) return answerWithModel;
  const { delta, logprobs, finish_reason: finish } = choice;
  const calls = [...answer.calls];
  for (const [position, { index = position, id, function: called }] of (delta?.tool_calls ?? []).entries()) {
    const call = calls[index] ?? { id: null, name: "", args: "" };
    calls[index] = { id: id ?? call.id, name: call.name + (called?.name ?? ""), args: call.args + (called?.arguments ?? "") };
  }
  return {
    ...answerWithModel,
    text: answer.text + (delta?.content ?? ""),
    reasoning: answer.reasoning + (delta?.reasoning ?? ""),
    calls,
    entries: logprobs?.content ? [...answer.entries, ...logprobs.content] : answer.entries,
    finish: finish ?? answer.finish,
  };
}

/** Returns the message of an answer for the next request. */
export function answerMessage({ text, calls }: Answer): RequestMessage {
  const toolCalls = calls.map(({ id, name, args }) => ({ id: id ?? "", type: "function", function: { name, arguments: args } }));
  return { role: "assistant", content: text, ...(toolCalls.length > 0 ? { tool_calls: toolCalls } : {}) } as RequestMessage;
}

/**
 * Streams an answer; `onAnswer` is called at most once per frame.
 *
 * @throws {@link RequestError} if the service rejects the request, or fails while it streams.
 */
export async function streamAnswer(
  request: Partial<ChatCompletionRequest>,
  { signal, onAnswer }: { readonly signal: AbortSignal; readonly onAnswer: (answer: Answer) => void },
): Promise<void> {
  const response = await send("/v1/chat/completions", {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ ...request, stream: true, logprobs: true }),
    signal,
  });
  let answer = EMPTY_ANSWER;
  let failure: RequestError | null = null;
  /** Requested animation frame; 0 for none. */
  let frame = 0;
  const parser = createParser({
    onEvent: ({ data }) => {
      if (data === "[DONE]") return;
      const chunk = JSON.parse(data) as Chunk | ErrorBody;
      if ("error" in chunk) failure = new RequestError(chunk.error.code, chunk.error.message);
      else answer = addChunk(answer, chunk);
    },
  });
  const decoder = new TextDecoder();
  const reader = response.body!.getReader();
  try {
    for (let part = await reader.read(); !part.done; part = await reader.read()) {
      parser.feed(decoder.decode(part.value, { stream: true }));
      if (frame === 0) {
        frame = requestAnimationFrame(() => {
          frame = 0;
          onAnswer(answer);
        });
      }
    }
  } finally {
    cancelAnimationFrame(frame);
    onAnswer(answer);
  }
  if (failure !== null) throw failure;
}
