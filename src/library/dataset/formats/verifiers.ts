/** Reading of `traces.jsonl`, in which verifiers stores its rollouts, as trajectory groups. */
import { DataError } from "../../../base/errors.ts";
import type { RolloutException } from "../../../base/schema/index.ts";
import { REWARD_PREFIX } from "../../../base/trajectory/scoring.ts";
import { type Trajectory, TrajectoryGroup, type Scalar } from "../../../base/trajectory/index.ts";
import { shown } from "../../../base/util/shown.ts";
import type { ReadOptions } from "../jsonl.ts";
import type { Patterns } from "../paths.ts";
import { convertedTrajectory, isJsonObject, parseDocument, readDocuments } from "./documents.ts";
import { historiesOfTrace } from "./verifiers-graph.ts";
import { verifiersEpisode, type VerifiersEpisode, type VerifiersTrace } from "./verifiers-schema.ts";

/** Rollouts of one group, while the files are read. */
interface CollectedGroup {
  readonly metadata: Record<string, Scalar>;
  readonly trajectories: Trajectory[];
  readonly exceptions: RolloutException[];
}

/**
 * Reads groups from `traces.jsonl` files of verifiers (one episode per line, trace version 1).
 *
 * Every successful trace becomes a trajectory: each path of its message graph is a history, sampled messages are choices with token ids and
 * log-probabilities (which verifiers rounds to four decimals by default), and the reward is `Σ score · weight`. Scores are the
 * metrics `reward/<name>`. Failed traces and episodes become exceptions. Messages of an agent that is not trainable are context.
 * Advantages, reference log-probabilities and loss weights are not read.
 *
 * A group has the traces of one agent in the episodes of one verifiers group, or else of one task. Episodes of a group are not adjacent in
 * the files, so all files are read before the first group is returned.
 *
 * @param patterns - Paths or globs, as for `readTrajectories`.
 * @param options - Handling of a torn last line, and a signal.
 * @returns The groups in order of their first episode; each iteration reads the files again. Iterating throws DataError `E_DATA` with file,
 *   line and field, the expected and the received value.
 * @example
 * ```ts
 * for await (const { rewards, exceptions } of readVerifiersTraces("outputs/*\/traces.jsonl")) {
 *   console.log(rewards, exceptions.length);
 * }
 * ```
 */
export function readVerifiersTraces(patterns: Patterns, options: ReadOptions = {}): AsyncIterable<TrajectoryGroup> {
  return {
    async *[Symbol.asyncIterator]() {
      const groups = new Map<string, CollectedGroup>();
      for await (const { value, where } of readDocuments(patterns, options)) collect(groups, value, where);
      for (const group of groups.values()) yield new TrajectoryGroup(group);
    },
  };
}

/** Adds the traces of an episode to their groups, successful ones as trajectories and failed ones as exceptions. */
function collect(groups: Map<string, CollectedGroup>, value: unknown, where: string): void {
  refuseOtherVersions(value, where);
  const episode = parseDocument(verifiersEpisode, value, "an episode of verifiers", where);
  const scenario = episode.task.key ?? episode.task.hash ?? null;
  const groupId = episode.group?.id ?? scenario ?? episode.id;
  /** Returns the group of an agent's traces in this episode, which is created if it is new. */
  const groupOf = (agent: string): CollectedGroup => {
    const key = JSON.stringify([groupId, agent]);
    const metadata = {
      ...(scenario === null ? {} : { scenario_id: scenario }),
      ...(episode.group ? { group_id: episode.group.id } : {}),
      ...(typeof episode.env?.id === "string" ? { environment: episode.env.name ?? episode.env.id } : {}),
      agent,
    };
    const group = groups.get(key) ?? { metadata, trajectories: [], exceptions: [] };
    groups.set(key, group);
    return group;
  };
  for (const [index, trace] of episode.traces.entries()) {
    const group = groupOf(trace.agent.name);
    if (trace.ok) group.trajectories.push(trajectoryOf(episode, trace, group.metadata, `${where}: traces.${index}`));
    else group.exceptions.push({ ...exceptionOf(trace), trace_id: trace.id, episode_id: episode.id });
  }
  if (episode.ok) return;
  // An error of the episode itself belongs to no trace; it is recorded for the first agent.
  const group = groupOf(episode.traces[0]?.agent.name ?? "agent");
  for (const error of episode.errors) group.exceptions.push({ ...failureOf(error), episode_id: episode.id });
}

/** @throws DataError `E_DATA` for a trace of another version, because its fields may have other meanings. */
function refuseOtherVersions(value: unknown, where: string): void {
  const traces = isJsonObject(value) && Array.isArray(value["traces"]) ? (value["traces"] as unknown[]) : [];
  for (const [index, trace] of traces.entries()) {
    const version = isJsonObject(trace) ? trace["version"] : undefined;
    if (version === 1) continue;
    throw new DataError(`${where}: expected \`traces.${index}.version\` 1, as verifiers 0.4 writes it, got ${shown(version)}`);
  }
}

/** Converts a successful trace to a trajectory. */
function trajectoryOf(episode: VerifiersEpisode, trace: VerifiersTrace, metadata: CollectedGroup["metadata"], where: string): Trajectory {
  const [main, ...others] = historiesOfTrace(trace, where);
  const policy = episode.run?.work?.policy;
  const startSeconds = trace.timing?.start;
  const rewards = Object.entries(trace.rewards).flatMap(([name, reward]) => (reward === null ? [] : [{ name, ...reward }]));
  const wire = {
    messages_and_choices: main?.messages_and_choices ?? [],
    tools: main?.tools ?? null,
    additional_histories: others,
    reward: rewards.reduce((sum, { score, weight }) => sum + score * weight, 0),
    metrics: {
      ...Object.fromEntries(Object.entries(trace.metrics).filter(([, metric]) => metric !== null)),
      ...Object.fromEntries(rewards.map(({ name, score }) => [REWARD_PREFIX + name, score])),
    },
    metadata: {
      ...metadata,
      trace_id: trace.id,
      episode_id: episode.id,
      ...(typeof trace.stop_condition === "string" ? { stop_condition: trace.stop_condition } : {}),
    },
    // A successful trace has errors if an earlier attempt failed.
    logs: trace.errors.map(({ type, message }) => `${type}: ${message}`),
    ...(policy ? { initial_policy_version: policy.start, final_policy_version: policy.end } : {}),
    start_time: typeof startSeconds === "number" ? new Date(startSeconds * 1000).toISOString() : null,
  };
  return convertedTrajectory(wire, where);
}

/** Returns the exception of a failed trace: its last error. */
function exceptionOf({ errors, stop_condition: stop }: VerifiersTrace): RolloutException {
  const lastError = errors.at(-1);
  if (lastError !== undefined) return failureOf(lastError);
  return { type: "RolloutError", message: `The trace did not complete; stop condition: ${stop ?? "none"}`, traceback: "" };
}

/** Converts an error of a trace or an episode to an exception. */
function failureOf({ type, message, traceback }: VerifiersTrace["errors"][number]): RolloutException {
  return { type, message, traceback: traceback ?? "" };
}
