/** Test double of a policy: answers from a script, without a service and a model. */

import { ArgumentError } from "../base/errors.ts";
import type { ChatCompletionRequest } from "../base/schema/index.ts";
import type { Policy } from "../base/trajectory/index.ts";
import { stepOf } from "../base/trajectory/policy.ts";

/** Answer of a scripted policy. */
export interface ScriptedTurn {
  /** Text of the answer. @default "" */
  readonly text?: string | undefined;
  /** Tool calls: name and arguments, the arguments as JSON text or null. @default none */
  readonly calls?: readonly (readonly [name: string, args: string | null])[] | undefined;
  /** Whether the answer ends at its token limit. @default false */
  readonly isTruncated?: boolean | undefined;
}

/** Options of {@link createScriptedPolicy}. */
export interface ScriptedPolicyOptions {
  /** Model name with its step, stored with every sampled turn. @default "local/demo/scripted:step0" */
  readonly id?: string | undefined;
}

/** Scripted policy with a record of its requests. */
export interface ScriptedPolicy extends Policy {
  /** All requests so far, oldest first. */
  readonly requests: readonly ChatCompletionRequest[];
}

/**
 * Creates a {@link Policy} that answers from a script, for tests of an agent or a rollout without service and model. Every turn has two
 * sampled tokens, 1 and 2, with the log-probabilities -1 and -2, so that its trajectory passes preflight.
 *
 * @param turns - Answers in order, or a function that returns the answer to a request; `index` counts requests from 0.
 * @param options - Name of the policy.
 * @returns the policy with its record of requests. `complete` rejects with `E_ARGUMENT` after the last turn of a list.
 * @example
 * ```ts
 * const policy = createScriptedPolicy([{ calls: [["add", '{"a":1,"b":2}']] }, { text: "It is 3." }]);
 * ```
 */
export function createScriptedPolicy(
  turns: readonly ScriptedTurn[] | ((request: ChatCompletionRequest, index: number) => ScriptedTurn),
  { id = "local/demo/scripted:step0" }: ScriptedPolicyOptions = {},
): ScriptedPolicy {
  const requests: ChatCompletionRequest[] = [];
  return {
    id,
    step: stepOf(id),
    requests,
    async complete(request) {
      const turn = typeof turns === "function" ? turns(request, requests.length) : turns[requests.length];
      requests.push(request);
      if (turn === undefined)
        throw new ArgumentError(`Expected at most ${requests.length - 1} requests, one per scripted turn; add a turn to the script`);
      const { text = "", calls = [], isTruncated = false } = turn;
      const answerEnd = calls.length > 0 ? "tool_calls" : "stop";
      const toolCalls = calls.map(([name, args], index) => ({
        id: `call-${requests.length}-${index}`,
        type: "function" as const,
        function: { name, arguments: args },
      }));
      return {
        id: "completion",
        object: "chat.completion",
        created: 0,
        model: id,
        choices: [
          {
            index: 0,
            message: { role: "assistant", content: text, tool_calls: toolCalls },
            finish_reason: isTruncated ? "length" : answerEnd,
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
