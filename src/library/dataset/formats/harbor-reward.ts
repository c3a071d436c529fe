/** Rewards of Harbor trials. The trial's verifier writes them to files of its own; the trajectory of the agent has none. */
import { readFile } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { DataError } from "../../../base/errors.ts";
import { REWARD_PREFIX } from "../../../base/trajectory/scoring.ts";
import type { TrajectoryChanges } from "../../../base/trajectory/index.ts";
import { shown } from "../../../base/util/shown.ts";
import { isJsonObject } from "./documents.ts";
import { isMissingFile } from "../../../base/util/file-system-error.ts";

/**
 * Reads the reward of a file `<trial>/agent/<name>` from `<trial>/verifier/reward.json` or `reward.txt`. Every named reward is also the
 * metric `reward/<name>`.
 *
 * @param path - Path of the trajectory.
 * @param name - Name of the reward among several. A single reward may have any name.
 * @returns Reward, and metrics if the verifier named its rewards; null for a file outside of a trial, or a trial without a reward.
 * @throws DataError `E_DATA` for a file that has no finite number, or several rewards of other names.
 */
export async function harborReward(path: string, name: string): Promise<TrajectoryChanges | null> {
  if (basename(dirname(path)) !== "agent") return null;
  const verifierDir = join(dirname(dirname(path)), "verifier");
  const jsonPath = join(verifierDir, "reward.json");
  const json = await readIfThere(jsonPath);
  if (json !== null) return rewardOf(parseReward(json, jsonPath), name, jsonPath);
  const textPath = join(verifierDir, "reward.txt");
  const text = await readIfThere(textPath);
  if (text === null) return null;
  // `Number("")` would be 0.
  return rewardOf(text.trim() === "" ? text : Number(text), name, textPath);
}

/** Returns the reward in a number, or in an object of rewards by name. */
function rewardOf(value: unknown, name: string, path: string): TrajectoryChanges {
  if (!isJsonObject(value)) return { reward: finiteNumber(value, "a number", path) };
  const rewards = Object.entries(value).map(([key, given]) => [key, finiteNumber(given, `a number at \`${key}\``, path)] as const);
  const chosen = rewards.length === 1 ? rewards[0] : rewards.find(([key]) => key === name);
  if (chosen === undefined) {
    throw new DataError(`${path}: expected a reward \`${name}\`, got ${shown(Object.keys(value))}; set \`rewardName\` to one of them`);
  }
  const [, reward] = chosen;
  return { reward, metrics: Object.fromEntries(rewards.map(([key, value]) => [REWARD_PREFIX + key, value])) };
}

/** Returns a finite number. @throws DataError `E_DATA` for any other value. */
function finiteNumber(value: unknown, expected: string, path: string): number {
  if (typeof value === "number" && Number.isFinite(value)) return value;
  throw new DataError(`${path}: expected ${expected}, got ${shown(value)}`);
}

/** Parses `reward.json`. @throws DataError `E_DATA` for text that is not JSON. */
function parseReward(text: string, path: string): unknown {
  try {
    return JSON.parse(text);
  } catch (cause) {
    throw new DataError(`${path}: expected a JSON document, got ${shown(text)}`, { cause });
  }
}

/** Reads a text file; null if it does not exist. */
async function readIfThere(path: string): Promise<string | null> {
  try {
    return await readFile(path, "utf8");
  } catch (error) {
    if (isMissingFile(error)) return null;
    throw new DataError(`${path}: cannot be read: ${(error as Error).message}`, { cause: error });
  }
}
