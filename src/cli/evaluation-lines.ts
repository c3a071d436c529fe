/** Layout of an evaluation's result for the terminal. */
import type { Evaluation } from "../library/environment/index.ts";
import { isChoice, textOf } from "../base/trajectory/messages.ts";
import { REWARD_PREFIX } from "../base/trajectory/scoring.ts";
import { toolErrorWarnings } from "../base/trajectory/tool-errors.ts";
import { describeException } from "../library/rollout/failure.ts";
import type { Trajectory } from "../base/trajectory/index.ts";
import { formatInterval, plural } from "./output.ts";
import { fields } from "./table.ts";

/** Max number of rollouts that are shown. */
const MAX_SAMPLES = 2;
/** Max number of characters of a shown message. */
const MAX_TEXT = 200;

/** Lays out an evaluation: rewards, metrics, warnings about tools, failures and two rollouts. */
export function* evaluationLines(evaluation: Evaluation): Generator<string> {
  const { environment, policy, scenarios, samples, reward, passAtK, rewards, metrics, groups, exceptions } = evaluation;
  yield `${environment} by ${policy}: ${plural(scenarios, "scenario")}, ${plural(samples, "rollout")} each`;
  yield `reward    ${formatInterval(reward)}`;
  for (const pass of passAtK) yield `pass@${String(pass.k).padEnd(4)} ${formatInterval(pass)}`;
  for (const [name, value] of Object.entries(rewards)) yield `${name.padEnd(9)} ${formatInterval(value)}`;
  const otherMetrics = Object.entries(metrics).filter(([name]) => !name.startsWith(REWARD_PREFIX));
  if (otherMetrics.length > 0) yield "metrics";
  yield* fields(Object.fromEntries(otherMetrics.map(([name, { mean }]) => [`  ${name}`, mean.toFixed(4)])));
  for (const { message } of toolErrorWarnings(groups)) yield `warning tool-errors: ${message}`;
  const [failure] = groups.flatMap((group) => group.exceptions);
  if (failure !== undefined) yield `${plural(exceptions, "rollout")} failed, the first with ${describeException(failure)}`;
  for (const group of groups.filter(({ trajectories }) => trajectories.length > 0).slice(0, MAX_SAMPLES)) {
    const [trajectory] = group.trajectories;
    if (trajectory !== undefined) yield* sampleLines(String(group.metadata["scenario_id"]), trajectory);
  }
}

/** Lays out a rollout: its rewards, and a line per message. */
function* sampleLines(scenario: string, { reward, metrics, messagesAndChoices }: Trajectory): Generator<string> {
  const rewardMetrics = Object.entries(metrics).filter(([name]) => name.startsWith(REWARD_PREFIX));
  const components = rewardMetrics.map(([name, value]) => `${name.slice(REWARD_PREFIX.length)} ${Number(value).toFixed(4)}`);
  yield `sample of ${scenario}: reward ${reward.toFixed(4)}${components.length === 0 ? "" : ` (${components.join(", ")})`}`;
  for (const item of messagesAndChoices) {
    const role = isChoice(item) ? "assistant" : item.role;
    const calls = isChoice(item)
      ? (item.message.tool_calls ?? []).map((call) => `${call.function.name}(${call.function.arguments ?? ""})`)
      : [];
    const text = [textOf(item), ...calls]
      .filter((part) => part !== "")
      .join(" ")
      .replaceAll(/\s+/gu, " ");
    yield `  ${role.padEnd(9)}  ${text.length > MAX_TEXT ? `${text.slice(0, MAX_TEXT)} …` : text}`;
  }
}
