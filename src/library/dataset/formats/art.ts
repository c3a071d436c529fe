/** Reading of trajectory groups of OpenPipe ART. Their trajectories have `messages_and_choices`, or requests and answers as `exchanges`. */
import { DataError } from "../../../base/errors.ts";
import { type Trajectory, TrajectoryGroup } from "../../../base/trajectory/index.ts";
import { driftLine, toHistories, toHistoryMembers } from "../../../base/trajectory/histories.ts";
import type { ReadOptions } from "../jsonl.ts";
import type { Patterns } from "../paths.ts";
import { callsOf } from "./art-calls.ts";
import { artExchanges } from "./art-schema.ts";
import { convertedTrajectory, isJsonObject, parseDocument, readDocuments, type Json } from "./documents.ts";

/** Options of {@link readArtGroups}. */
export interface ReadArtOptions extends ReadOptions {
  /**
   * Model of the exchanges to read, e.g. the trained model of trajectories that also have calls to a judge.
   *
   * @default the only model; several are an error
   */
  readonly model?: string | undefined;
}

/**
 * Reads groups from files of ART: `TrajectoryGroup` or `Trajectory` dumped as JSON, one per line or one per `.json` file. A single
 * trajectory is a group of its own.
 *
 * The `exchanges` of a trajectory, requests and responses of Chat Completions, Messages, Responses and Completions, become histories as in
 * capture: a call that continues an earlier answer extends its history, every other call starts one. Token ids and log-probabilities are
 * read under the names that ART's servers give them. The prompt of a text completion becomes a message of a user. Lists and objects in
 * metadata become JSON text. Trajectories with `messages_and_choices` are read, too.
 *
 * @param patterns - Paths or globs, as for `readTrajectories`.
 * @param options - Model, handling of a torn last line, and a signal.
 * @returns The groups in file order; each iteration reads the files again. Iterating throws DataError `E_DATA` with file, line and field, the
 *   expected and the received value; also for exchanges of several models without `model`, and for the compact form of ART.
 * @example
 * ```ts
 * for await (const { rewards, trajectories } of readArtGroups("art/*.jsonl", { model: "my-model" })) {
 *   console.log(rewards, trajectories.map(({ choices }) => choices.length));
 * }
 * ```
 */
export function readArtGroups(patterns: Patterns, { model, ...options }: ReadArtOptions = {}): AsyncIterable<TrajectoryGroup> {
  return {
    async *[Symbol.asyncIterator]() {
      for await (const { value, where } of readDocuments(patterns, options)) yield await groupOf(value, model, where);
    },
  };
}

/** Converts a group, or a single trajectory as a group of its own. */
async function groupOf(value: unknown, model: string | undefined, where: string): Promise<TrajectoryGroup> {
  if (!isJsonObject(value)) throw new DataError(`${where}: expected a trajectory or a trajectory group of ART, an object`);
  if (value["format"] === "art.trajectories")
    throw new DataError(`${where}: expected a plain dump of ART, got its compact form; write it with \`model_dump_json()\``);
  if (!Array.isArray(value["trajectories"])) return new TrajectoryGroup({ trajectories: [await trajectoryOf(value, model, where)] });
  const trajectories: Trajectory[] = [];
  for (const [index, each] of (value["trajectories"] as unknown[]).entries())
    trajectories.push(await trajectoryOf(each, model, `${where}: trajectories.${index}`));
  const { trajectories: _, ...members } = value;
  try {
    // Validates the other members; the trajectories are valid.
    return TrajectoryGroup.fromJSON({ ...members, metadata: scalars(value["metadata"]), trajectories: [] }).with({ trajectories });
  } catch (cause) {
    if (!(cause instanceof DataError)) throw cause;
    throw new DataError(`${where}: ${cause.message}`, { cause });
  }
}

/** Converts a trajectory. Its exchanges, if it has some, replace `messages_and_choices`. */
async function trajectoryOf(value: unknown, model: string | undefined, where: string): Promise<Trajectory> {
  if (!isJsonObject(value) || !("exchanges" in value || "messages_and_choices" in value))
    throw new DataError(`${where}: expected a trajectory of ART with \`exchanges\` or \`messages_and_choices\``);
  const { exchanges, ...members } = value;
  const wire = { ...members, metadata: scalars(value["metadata"]) };
  if (!hasExchanges(exchanges)) return convertedTrajectory(wire, where);
  const parsed = parseDocument(artExchanges, exchanges, "exchanges of ART", `${where}: exchanges`);
  const { histories, drifted } = toHistories(await callsOf(parsed, model, `${where}: exchanges`), null);
  const logs = [...((value["logs"] as string[] | undefined) ?? []), ...drifted.map(driftLine)];
  const { chat_completions: chats, completions, responses, messages } = parsed;
  const startTimes = [...chats, ...completions, ...responses, ...messages].map((each) => each.start_time);
  const startTime = startTimes.toSorted()[0] ?? null;
  return convertedTrajectory({ ...wire, ...toHistoryMembers(histories), logs, start_time: startTime }, where);
}

/** Whether a trajectory has exchanges. Invalid ones count, so that the schema reports them. */
function hasExchanges(exchanges: unknown): boolean {
  if (exchanges === undefined || exchanges === null) return false;
  return !isJsonObject(exchanges) || Object.values(exchanges).some((list) => !Array.isArray(list) || list.length > 0);
}

/** Returns metadata with JSON text in place of lists and objects. */
function scalars(metadata: unknown): unknown {
  if (!isJsonObject(metadata)) return metadata ?? {};
  const plain: Json = {};
  for (const [name, value] of Object.entries(metadata))
    plain[name] = typeof value === "object" && value !== null ? JSON.stringify(value) : value;
  return plain;
}
