/** Rollouts of `validate` in which the right answer (`gold`) takes the place of the model, so that the environment's tools run. */
import type { RequestMessage } from "../../base/schema/index.ts";
import { gatherTrajectoryGroups } from "../rollout/index.ts";
import { textOf } from "../../base/trajectory/messages.ts";
import type { Policy } from "../../base/trajectory/index.ts";
import { toolErrors } from "../../base/trajectory/tool-errors.ts";
import { finding } from "./finding.ts";
import type { ValidationFinding } from "./validate.ts";
import type { Environment, EnvironmentContext } from "./environment.ts";

/** Failures of a played right answer; a member is null if its part did not fail. */
export interface PlayedGold {
  /** Message of the error that ended the rollout. */
  readonly rollout: string | null;
  /** Name of a tool whose call failed, with the error. */
  readonly tool: string | null;
}

/** Returns the findings about rollouts and tools that fail although the right answer takes the place of the model. */
export function playFindings(
  probes: readonly { readonly scenarioId: string; readonly played: PlayedGold | null }[],
): ValidationFinding[][] {
  const findingAbout = (part: keyof PlayedGold, message: string) => {
    const failed = probes.filter(({ played }) => played !== null && played[part] !== null);
    const scenarioIds = failed.map(({ scenarioId }) => scenarioId);
    const firstError = failed[0]?.played?.[part];
    return finding(`${part}-failed`, "fatal", scenarioIds, `${message}: ${firstError}. Correct the ${part} or \`gold\`.`);
  };
  return [
    findingAbout("rollout", "The rollout fails with the right answer"),
    findingAbout("tool", "A tool fails on a call of the right answer"),
  ];
}

/** Whether a right answer calls tools; only then does playing it run the environment's tools. */
export function callsTools(gold: string | readonly RequestMessage[]): gold is readonly RequestMessage[] {
  return typeof gold !== "string" && gold.some(({ tool_calls: calls }) => (calls ?? []).length > 0);
}

/** Plays a scenario with a policy that says the assistant messages of the right answer. Rewards are not computed. */
export async function playGold<S>(
  environment: Environment<S>,
  scenario: S,
  gold: readonly RequestMessage[],
  signal: AbortSignal,
): Promise<PlayedGold> {
  const policy = goldPolicy(gold.filter(({ role }) => role === "assistant"));
  const play = async (each: S, context: EnvironmentContext) => {
    const played = await environment.rollout(each, context);
    return "finish" in played ? played.finish({ reward: 0 }) : played;
  };
  const groups = await gatherTrajectoryGroups([scenario], play, { policy, groupSize: 1, maxExceptions: 1, progress: false, signal });
  const failed = toolErrors(groups.flatMap(({ trajectories }) => trajectories)).find(({ errors }) => errors > 0);
  return {
    rollout: groups[0]?.exceptions[0]?.message ?? null,
    tool: failed === undefined ? null : `\`${failed.tool}\`: ${failed.message}`,
  };
}

/** Creates a policy that answers its requests with `answers`, one after the other, and then with empty texts. */
function goldPolicy(answers: readonly RequestMessage[]): Policy {
  const id = "gold:step0";
  let requests = 0;
  return {
    id,
    step: 0,
    complete() {
      const turn = requests;
      requests++;
      const { tool_calls: calls, ...answer } = answers[turn] ?? { role: "assistant", content: "" };
      const toolCalls = (calls ?? []).map((call, position) => ({ ...call, id: call.id ?? `call-${turn}-${position}` }));
      return Promise.resolve({
        id: `gold-${requests}`,
        object: "chat.completion",
        created: 0,
        model: id,
        choices: [
          {
            index: 0,
            message: {
              role: "assistant",
              content: textOf(answer as RequestMessage),
              ...(toolCalls.length > 0 ? { tool_calls: toolCalls } : {}),
            },
            finish_reason: toolCalls.length > 0 ? "tool_calls" : "stop",
            // Placeholders, because a sampled turn has token ids and log-probabilities.
            token_ids: [0],
            logprobs: { content: [{ token: "", logprob: 0, top_logprobs: [] }] },
          },
        ],
        usage: { prompt_tokens: 1, completion_tokens: 1, total_tokens: 2 },
        prompt_token_ids: [0],
      });
    },
  };
}
