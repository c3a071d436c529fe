/** Spans of rollouts, by the conventions of OpenTelemetry for generative AI: `invoke_agent`, with the rewards as evaluation events. */
import { REWARD_PREFIX } from "../../base/trajectory/scoring.ts";
import type { Policy, Trajectory } from "../../base/trajectory/index.ts";
import { withSpan, type TraceAttributes, type TraceSpan, type Tracing } from "../../base/util/tracing.ts";
import type { RolloutId } from "./events.ts";

/** Facts of an attempt for its span. */
export interface TracedAttempt {
  readonly id: RolloutId & { readonly seed: number };
  readonly policy: Policy | undefined;
  /** Attributes of all rollouts of the run. */
  readonly attributes: TraceAttributes;
}

/** Result of an attempt: a trajectory, or the value that was thrown. */
type Result = { readonly trajectory: Trajectory } | { readonly trajectory?: undefined; readonly error: unknown };

/** Adds scenario and rewards of a finished rollout: the total, and each component. */
function addRewards(span: TraceSpan, { reward, metrics, metadata }: Trajectory): void {
  const scenarioId = metadata["scenario_id"];
  if (scenarioId !== undefined) span.set({ "whetstone.scenario_id": String(scenarioId) });
  const add = (name: string, value: number) =>
    span.event("gen_ai.evaluation.result", { "gen_ai.evaluation.name": name, "gen_ai.evaluation.score.value": value });
  add("reward", reward);
  for (const [name, value] of Object.entries(metrics)) if (name.startsWith(REWARD_PREFIX)) add(name, Number(value));
}

/** Runs an attempt of a rollout in a span. */
export function traceAttempt<R extends Result>(
  tracing: Tracing,
  { id, policy, attributes }: TracedAttempt,
  work: () => Promise<R>,
): Promise<R> {
  const agent = attributes["gen_ai.agent.name"];
  const start = {
    kind: "internal",
    attributes: {
      "gen_ai.operation.name": "invoke_agent",
      "gen_ai.provider.name": "whetstone",
      "gen_ai.request.model": policy?.id,
      "whetstone.policy_step": policy?.step ?? undefined,
      "whetstone.group": id.group,
      "whetstone.index": id.index,
      "whetstone.attempt": id.attempt,
      "whetstone.seed": id.seed,
      ...attributes,
    },
  } as const;
  const name = agent === undefined ? "invoke_agent" : `invoke_agent ${String(agent)}`;
  return withSpan(tracing, name, start, async (span) => {
    const result = await work();
    if (result.trajectory === undefined) span.fail(result.error);
    else addRewards(span, result.trajectory);
    return result;
  });
}
