import type { ChatCompletionRequest } from "../../../src/schema/index.ts";
import type { Policy } from "../../../src/trajectory/index.ts";

/** One answer: a text, or the calls to make. `cut` ends it for length. */
export interface ScriptedTurn {
  readonly text?: string;
  readonly calls?: readonly (readonly [name: string, args: string | null])[];
  readonly cut?: boolean;
}

/** A policy that gives the turns one after the other, and keeps the requests. */
export function scriptedPolicy(turns: readonly ScriptedTurn[]): Policy & { readonly requests: ChatCompletionRequest[] } {
  const requests: ChatCompletionRequest[] = [];
  return {
    id: "team/demo/agent:step3",
    step: 3,
    requests,
    async complete(request) {
      const { text = "", calls = [], cut = false } = turns[requests.length] ?? {};
      requests.push(request);
      const toolCalls = calls.map(([name, args], index) => ({
        id: `call-${requests.length}-${index}`,
        type: "function" as const,
        function: { name, arguments: args },
      }));
      return {
        id: "completion",
        object: "chat.completion",
        created: 0,
        model: "team/demo/agent:step3",
        choices: [
          {
            index: 0,
            message: { role: "assistant", content: text, tool_calls: toolCalls },
            finish_reason: cut ? "length" : calls.length > 0 ? "tool_calls" : "stop",
            token_ids: [1, 2],
            logprobs: { content: [-1, -2].map((logprob) => ({ token: "x", logprob, top_logprobs: [] })) },
          },
        ],
        usage: { prompt_tokens: 1, completion_tokens: 2, total_tokens: 3 },
        prompt_token_ids: [5],
      };
    },
  };
}
