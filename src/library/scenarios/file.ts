/** Files of scenarios, as JSON Lines. */
import { mkdir } from "node:fs/promises";
import { dirname } from "node:path";
import { readRecords } from "../dataset/trajectories.ts";
import { writeJsonLines, type ReadOptions, type WriteOptions, type WrittenFile } from "../dataset/jsonl.ts";
import type { Patterns } from "../dataset/index.ts";
import { versioned } from "../dataset/records.ts";
import { DataError } from "../../base/errors.ts";
import { normalizedTask, storedScenario, taskId, type ToolScenario } from "./scenario.ts";

/**
 * Writes scenarios as JSON Lines, one per line, with their other keys. Atomic: a failed call leaves `path` unchanged.
 *
 * @param path - File to write; its directory is created if missing. Compressed if the name ends in `.gz`.
 * @param scenarios - Scenarios, in order.
 * @param options - Signal.
 * @returns Path, number of lines, size and SHA-256 of the file.
 * @throws DataError `E_DATA` for an invalid scenario, or an id or task that occurs twice.
 * @throws the signal's reason.
 * @example
 * ```ts
 * const task = "Find the shelf of the book kat.";
 * await writeScenarios("scenarios.jsonl", [{ id: "kat", task, difficulty: 1, tools: ["find"] }]);
 * ```
 */
export async function writeScenarios(path: string, scenarios: Iterable<ToolScenario>, options: WriteOptions = {}): Promise<WrittenFile> {
  const check = scenarioCheck();
  const lines = function* () {
    let count = 0;
    for (const scenario of scenarios) {
      count++;
      yield versioned(check(scenario, `Scenario ${count}`));
    }
  };
  await mkdir(dirname(path), { recursive: true });
  return writeJsonLines(path, lines(), options);
}

/**
 * Reads scenarios from JSON Lines files of {@link writeScenarios}, or written by hand. Unknown keys of a line are kept; a line without `id` gets
 * the id of its task.
 *
 * @param patterns - Paths or globs, as for `readTrajectories`.
 * @param options - Handling of a torn last line, and a signal.
 * @returns The scenarios in file order.
 * @throws DataError `E_DATA` with file and line, also for an id or task of an earlier line.
 * @throws the signal's reason.
 * @example
 * ```ts
 * import { defineEnvironment, trajectory } from "whetstone";
 *
 * const [train, held] = await Promise.all(["scenarios/train.jsonl", "scenarios/eval.jsonl"].map((path) => readScenarios(path)));
 * const tasks = defineEnvironment({
 *   name: "tasks",
 *   scenarios: { train: train!, eval: held! },
 *   async rollout({ task }, { policy, sampling }) {
 *     const t = trajectory({ messages: [{ role: "user", content: task }] });
 *     await t.sample(policy, { maxCompletionTokens: 64, ...sampling });
 *     return t;
 *   },
 *   rewards: [{ name: "short", score: ({ text }) => text.length < 80 }],
 * });
 * ```
 */
export async function readScenarios(patterns: Patterns, options: ReadOptions = {}): Promise<ToolScenario[]> {
  const check = scenarioCheck();
  const scenarios: ToolScenario[] = [];
  for await (const { value, where } of readRecords(patterns, options)) scenarios.push(check(value, where));
  return scenarios;
}

/**
 * Returns a function that checks one scenario after the other, also against all earlier ones.
 *
 * The function throws DataError `E_DATA` for an invalid scenario, or a repeated id or task; its message starts with `where`, the position
 * of the scenario.
 */
function scenarioCheck(): (value: unknown, where: string) => ToolScenario {
  /** Positions of the scenarios by id, and by normalized task. */
  const ids = new Map<string, string>();
  const tasks = new Map<string, string>();
  return (value, where) => {
    const { data, error } = storedScenario.safeParse(value);
    if (error !== undefined) {
      const [issue] = error.issues;
      throw new DataError(`${where}: expected a scenario; at \`${issue?.path.join(".") || "(root)"}\`: ${issue?.message ?? "invalid"}`);
    }
    const scenario = { ...data, id: data.id ?? taskId(data.task) };
    register(ids, scenario.id, { name: "id", where });
    register(tasks, normalizedTask(scenario.task), { name: "task", where });
    return scenario;
  };
}

/** Records the position of an id or task. @throws DataError `E_DATA` if an earlier scenario has it. */
function register(positions: Map<string, string>, key: string, { name, where }: { readonly name: string; readonly where: string }): void {
  const earlier = positions.get(key);
  if (earlier !== undefined) throw new DataError(`${where}: expected a new ${name}, got the ${name} of ${earlier} again: \`${key}\``);
  positions.set(key, where);
}
