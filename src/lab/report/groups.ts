/** Conversion of stored groups and trajectories to the data of the pages. */
import type { MessageOrChoice, Trajectory as WireTrajectory, TrajectoryGroup as WireTrajectoryGroup } from "../../base/schema/index.ts";
import { isChoice } from "../../base/trajectory/messages.ts";
import { completionTokens, summarize } from "../../base/trajectory/statistics.ts";
import { isTrainableGroup } from "../../base/trajectory/trainable.ts";
import { isTrainableWire } from "../../base/trajectory/token-values.ts";
import { allChoices, historiesOf } from "../../base/trajectory/trajectory.ts";
import type { TrainedTurn } from "../../run/read-groups.ts";
import type { DetailData, GroupData, ItemData, TrajectoryData } from "./page-data.ts";
import { sampledData } from "./tokens.ts";

/** Returns the contents of a trajectory for the page; null to omit them. */
export type Details = (trajectory: WireTrajectory, index: number) => DetailData | null;

/** Constant that is added to the standard deviation of the rewards before the division, as in the trainer. */
const DEVIATION_EPSILON = 1e-6;

/** Data of a group that its line in the file determines. */
export type StoredGroupData = Omit<GroupData, "isDiscarded">;

/**
 * Converts a group for the page. Every trajectory has its reward and advantage.
 *
 * @param line - Line number in the file, from 1.
 */
export function groupData(group: WireTrajectoryGroup, line: number, details: Details): StoredGroupData {
  const rewards = group.trajectories.map(({ reward }) => reward);
  const { mean, std } = summarize(rewards);
  const hasSpread = isTrainableGroup(rewards);
  return {
    line,
    id: String(group.metadata["scenario_id"] ?? group.metadata["scenario_index"] ?? line - 1),
    mean: rewards.length === 0 ? null : mean,
    deviation: rewards.length === 0 ? null : std,
    isTrainable: isTrainableWire(group),
    metadata: group.metadata,
    metrics: group.metrics,
    logs: group.logs,
    exceptions: group.exceptions.map(({ type, message, traceback }) => ({ type, message, traceback })),
    trajectories: group.trajectories.map((trajectory, index) =>
      trajectoryData(trajectory, {
        advantage: hasSpread ? (trajectory.reward - mean) / (std + DEVIATION_EPSILON) : 0,
        detail: details(trajectory, index),
      }),
    ),
  };
}

/** Converts a trajectory, with its contents as `detail`. */
function trajectoryData(trajectory: WireTrajectory, { advantage, detail }: Pick<TrajectoryData, "advantage" | "detail">): TrajectoryData {
  const choices = allChoices(trajectory);
  return {
    reward: trajectory.reward,
    advantage,
    tokens: choices.reduce((sum, choice) => sum + completionTokens(choice), 0),
    turns: choices.length,
    detail,
  };
}

/**
 * Converts the contents of a trajectory for the page.
 *
 * @param turns - Values of the trainer per sampled turn; undefined if none were stored.
 */
export function detailData(trajectory: WireTrajectory, turns: readonly TrainedTurn[] | undefined): DetailData {
  // The trainer numbers sampled turns of the main conversation first, then of the additional histories.
  let nextTurn = 0;
  const convert = (item: MessageOrChoice): ItemData => {
    if (!isChoice(item)) return itemData(item, undefined);
    const turn = nextTurn++;
    return itemData(item, turns?.[turn]);
  };
  return {
    start: trajectory.start_time ?? null,
    policies: [trajectory.initial_policy_version ?? null, trajectory.final_policy_version ?? null],
    metrics: trajectory.metrics,
    metadata: trajectory.metadata,
    logs: trajectory.logs,
    tools: (trajectory.tools ?? []).map((tool) => ({ name: tool.function.name, description: tool.function.description ?? "" })),
    histories: historiesOf(trajectory).map(({ items }) => items.map(convert)),
  };
}

/** Converts a message or a choice. @param trained - Values of the trainer for a choice; undefined if none were stored. */
function itemData(item: MessageOrChoice, trained: TrainedTurn | undefined): ItemData {
  const message = isChoice(item) ? { name: undefined, tool_call_id: undefined, ...item.message } : item;
  const refusal: unknown = Reflect.get(message, "refusal");
  return {
    role: message.role,
    text: contentText(message.content) + (typeof refusal === "string" ? refusal : ""),
    name: typeof message.name === "string" ? message.name : null,
    reasoning: message.reasoning ?? null,
    callId: typeof message.tool_call_id === "string" ? message.tool_call_id : null,
    calls: (message.tool_calls ?? []).map((call) => ({
      id: call.id ?? null,
      name: call.function.name,
      args: call.function.arguments ?? "",
    })),
    sampled: isChoice(item) ? sampledData(item, trained) : null,
  };
}

/** Returns content as text. Parts without text (images, audio) are replaced by their type, because a text page cannot show their data. */
function contentText(content: WireContent): string {
  if (content === null || content === undefined) return "";
  if (typeof content === "string") return content;
  return content.map((part) => (typeof part === "string" ? part : (part.text ?? `[${part.type ?? "part"}]`))).join("\n");
}

/** Content of a message in a file. */
type WireContent =
  | string
  | readonly (string | { readonly type?: string | undefined; readonly text?: string | null | undefined })[]
  | null
  | undefined;
