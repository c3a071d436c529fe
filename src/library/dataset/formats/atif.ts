/**
 * Reading and writing of ATIF, the Agent Trajectory Interchange Format of Harbor. Values that ATIF has no field for, the extension values,
 * are written to `extra.whetstone`; a document with this member was written by {@link toAtif}.
 */
import { DataError } from "../../../base/errors.ts";
import type { History, Tool } from "../../../base/schema/index.ts";
import type { Scalar, Trajectory } from "../../../base/trajectory/index.ts";
import { Dataset } from "../dataset.ts";
import type { Patterns } from "../paths.ts";
import { writeJsonLines, type ReadOptions, type WriteOptions, type WrittenFile } from "../jsonl.ts";
import { ATIF_VERSION, atifTrajectory, type AtifTrajectory } from "./atif-schema.ts";
import { itemsOfStep, extensionOf, stepsOf, withExtension } from "./atif-steps.ts";
import { convertedTrajectory, isJsonObject, parseDocument, readDocuments, type Json } from "./documents.ts";
import { harborReward } from "./harbor-reward.ts";

/** Options of {@link toAtif}. */
export interface AtifOptions {
  /** Agent that the document names. @default { name: "whetstone", version: "unknown" } */
  readonly agent?: AtifAgent | undefined;
}

/** Agent of an ATIF document. */
export interface AtifAgent {
  /** Name of the agent. */
  readonly name: string;
  /** Version of the agent. */
  readonly version: string;
  /** Model of the agent. @default none */
  readonly model?: string | undefined;
}

/** Options of {@link writeAtif}. */
export interface WriteAtifOptions extends WriteOptions, AtifOptions {}

/** Options of {@link readAtif}. */
export interface ReadAtifOptions extends ReadOptions {
  /**
   * Name of the reward that becomes the trajectory's reward, if the verifier of a Harbor trial gave several.
   *
   * @default "reward"
   */
  readonly rewardName?: string | undefined;
}

/**
 * Reads trajectories from ATIF documents, lazily: one document per file if the name ends in `.json`, as Harbor's agents write them, else
 * one per line. Files ending in `.gz` are decompressed.
 *
 * Agent steps become sampled turns with their token ids and log-probabilities, except steps with `is_copied_context` or without a model
 * call, which become context. Observations become tool messages. Embedded sub-agents become additional histories; sub-agents in other files
 * are named in `logs`. ATIF has no rewards: a document of {@link writeAtif} has them in `extra`, and for a file
 * `<trial>/agent/<name>.json` of a Harbor trial they are read from `<trial>/verifier/`. Without either the reward is 0.
 *
 * @param patterns - Paths or globs, as for `readTrajectories`.
 * @param options - Name of the reward, handling of a torn last line, and a signal.
 * @returns Dataset; each iteration reads the files again. Iterating throws DataError `E_DATA` with file, line and field, the expected and the
 *   received value.
 * @example
 * ```ts
 * import { writeTrajectories } from "whetstone/dataset";
 *
 * const solved = readAtif("jobs/*\/*\/agent/trajectory.json").filter(({ reward }) => reward === 1);
 * await writeTrajectories("solved.jsonl", solved);
 * ```
 */
export function readAtif(patterns: Patterns, { rewardName = "reward", ...options }: ReadAtifOptions = {}): Dataset {
  return Dataset.from({
    async *[Symbol.asyncIterator]() {
      for await (const { value, where, path } of readDocuments(patterns, options)) {
        const trajectory = parseAtif(value, where);
        const reward = isWrittenByToAtif(value) ? null : await harborReward(path, rewardName);
        yield reward === null ? trajectory : trajectory.with(reward);
      }
    },
  });
}

/**
 * Writes trajectories as ATIF documents, one per line; a file of one trajectory is also a valid `.json` document. Atomic: a failed call
 * leaves `path` unchanged.
 *
 * @param path - File to write; compressed if the name ends in `.gz`.
 * @param trajectories - Trajectories, in order; exactly one if the name ends in `.json`.
 * @param options - Agent that the documents name, and a signal.
 * @returns Path, number of lines, size and SHA-256 of the file.
 * @throws DataError `E_DATA` for a trajectory without messages, or for several trajectories in a `.json` file.
 * @throws the signal's reason.
 * @example
 * ```ts
 * await writeAtif("best.atif.jsonl", groups.flatMap(({ trajectories }) => trajectories), { agent: { name: "my-agent", version: "1.2.0" } });
 * ```
 */
export function writeAtif(
  path: string,
  trajectories: Iterable<Trajectory> | AsyncIterable<Trajectory>,
  { signal, ...options }: WriteAtifOptions = {},
): Promise<WrittenFile> {
  const documents = async function* () {
    let count = 0;
    for await (const trajectory of trajectories) {
      count++;
      if (count > 1 && /\.json(?:\.gz)?$/u.test(path))
        throw new DataError(`${path}: expected one trajectory for a .json file, got several; name the file .jsonl`);
      yield toAtif(trajectory, options);
    }
  };
  return writeJsonLines(path, documents(), { signal });
}

/**
 * Converts a trajectory to an ATIF document.
 *
 * Tool messages become observations of the step before them, and assistant messages that were not sampled become copied context. Arguments
 * that are not the text of a JSON object, the reward, and all other values that ATIF has no field for are kept under `extra.whetstone`, so
 * that {@link fromAtif} returns an equal trajectory; null, empty lists and empty additional histories become absent.
 *
 * @param trajectory - Trajectory with at least one message.
 * @param options - Agent that the document names.
 * @returns The document, of version ATIF-v1.8.
 * @throws DataError `E_DATA` for a trajectory without messages.
 * @example
 * ```ts
 * for (const { source, message } of toAtif(finished).steps) console.log(source, message);
 * ```
 */
export function toAtif(trajectory: Trajectory, { agent }: AtifOptions = {}): AtifTrajectory {
  const { messages_and_choices: items, tools, additional_histories: histories, ...extension } = trajectory.toJSON();
  if (items.length === 0) throw new DataError("Expected a trajectory with at least one message, because ATIF requires a step; got none");
  const document = documentOf({ messages_and_choices: items, tools }, extension, agent);
  const embedded = histories
    .filter((history) => history.messages_and_choices.length > 0)
    .map((history, index) => {
      const { messages_and_choices: _, tools: __, ...furtherMembers } = history;
      const historyExtension = Object.keys(furtherMembers).length > 0 ? furtherMembers : undefined;
      return { ...documentOf(history, historyExtension, agent), trajectory_id: `history-${index + 1}` };
    });
  return { ...document, ...(embedded.length > 0 ? { subagent_trajectories: embedded } : {}) };
}

/** Returns the document of one history. @param extension - Values to keep under `extra.whetstone`; undefined for none. */
function documentOf(
  history: History,
  extension: Json | undefined,
  agent: AtifAgent = { name: "whetstone", version: "unknown" },
): AtifTrajectory {
  const steps = stepsOf(history.messages_and_choices);
  const sum = (name: "prompt_tokens" | "completion_tokens") => steps.reduce((total, { metrics }) => total + (metrics?.[name] ?? 0), 0);
  return {
    schema_version: ATIF_VERSION,
    agent: {
      name: agent.name,
      version: agent.version,
      ...(agent.model === undefined ? {} : { model_name: agent.model }),
      ...(history.tools?.length ? { tool_definitions: history.tools } : {}),
    },
    steps,
    final_metrics: {
      total_prompt_tokens: sum("prompt_tokens"),
      total_completion_tokens: sum("completion_tokens"),
      total_steps: steps.length,
    },
    ...withExtension(extension),
  };
}

/**
 * Converts an ATIF document to a trajectory, as {@link readAtif} does.
 *
 * @param value - Value parsed from JSON.
 * @returns The trajectory; its reward is 0 for a document of another program.
 * @throws DataError `E_DATA` that names up to five fields, each with the expected and the received value.
 * @example
 * ```ts
 * const { messagesAndChoices } = fromAtif(JSON.parse(line));
 * console.log(messagesAndChoices.length);
 * ```
 */
export function fromAtif(value: unknown): Trajectory {
  return parseAtif(value, "ATIF");
}

/** Validates and converts a document. @param where - Beginning of every error message. */
function parseAtif(value: unknown, where: string): Trajectory {
  const document = parseDocument(atifTrajectory, value, "an ATIF document", where);
  const embedded = descendants(document);
  for (const each of [document, ...embedded]) refuseAgentMedia(each, where);
  const wire = {
    ...(extensionOf(document.extra) ?? foreignValues(document, embedded)),
    ...historyOf(document),
    additional_histories: embedded.map((each) => ({ ...extensionOf(each.extra), ...historyOf(each) })),
  };
  return convertedTrajectory(wire, where);
}

/** Whether {@link toAtif} wrote a document, which then has the reward and all other values without a field of ATIF. */
function isWrittenByToAtif(value: unknown): boolean {
  return isJsonObject(value) && extensionOf(value["extra"] as AtifTrajectory["extra"]) !== undefined;
}

/** Returns the steps of a document as messages and choices, with the agent's tools. */
function historyOf({ steps, agent }: AtifTrajectory): History {
  const tools = (agent.tool_definitions ?? []) as unknown as Tool[];
  return { messages_and_choices: steps.flatMap(itemsOfStep), ...(tools.length > 0 ? { tools } : {}) };
}

/** Returns the embedded trajectories of all levels, each followed by its own embedded ones. */
function descendants({ subagent_trajectories: embedded }: AtifTrajectory): AtifTrajectory[] {
  return (embedded ?? []).flatMap((each) => [each, ...descendants(each)]);
}

/** Returns metadata, logs and start time of a document of another program. */
function foreignValues(document: AtifTrajectory, embedded: readonly AtifTrajectory[]): Json {
  const { session_id, trajectory_id, agent, steps, continued_trajectory_ref, notes } = document;
  const metadata: Record<string, Scalar | null | undefined> = {
    session_id,
    trajectory_id,
    agent: agent.name,
    agent_version: agent.version,
    model: agent.model_name,
    continued_trajectory_ref,
  };
  const files = [document, ...embedded].flatMap((each) => each.steps.flatMap(referencedFiles));
  return {
    metadata: Object.fromEntries(Object.entries(metadata).filter(([, value]) => typeof value === "string")),
    logs: [...(typeof notes === "string" ? [notes] : []), ...files.map((file) => `The sub-agent's trajectory in ${file} was not read`)],
    start_time: steps[0]?.timestamp ?? null,
  };
}

/** Returns the files of the sub-agents' trajectories to which a step refers; embedded ones have an id instead. */
function referencedFiles({ observation }: AtifTrajectory["steps"][number]): string[] {
  const references = (observation?.results ?? []).flatMap((each) => each.subagent_trajectory_ref ?? []);
  return references.filter(({ trajectory_id: id }) => typeof id !== "string").map(({ trajectory_path: path }) => path ?? "another file");
}

/** @throws DataError `E_DATA` for an image or audio in an agent's step, because a sampled turn is text. */
function refuseAgentMedia({ steps }: AtifTrajectory, where: string): void {
  for (const [index, { source, message }] of steps.entries()) {
    if (source !== "agent" || typeof message === "string") continue;
    for (const [partIndex, { type }] of message.entries()) {
      if (type === "text") continue;
      throw new DataError(`${where}: \`steps.${index}.message.${partIndex}.type\`: expected text in a step of an agent, got ${type}`);
    }
  }
}
