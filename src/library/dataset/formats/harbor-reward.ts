/** Rewards of Harbor trials. The trial's verifier writes them to files of its own; the trajectory of the agent has none. */
import { readFile } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { DataError } from "../../../base/errors.ts";
import { REWARD_PREFIX } from "../../../base/trajectory/scoring.ts";
import type { TrajectoryChanges } from "../../../base/trajectory/index.ts";
import { shown } from "../../../base/util/shown.ts";
import { isJson } from "./documents.ts";
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
  const verifier = join(dirname(dirname(path)), "verifier");
  const json = join(verifier, "reward.json");
  const text = await readIfThere(json);
  if (text !== null) return rewardOf(parsed(text, json), name, json);
  const plain = join(verifier, "reward.txt");
  const written = await readIfThere(plain);
  if (written === null) return null;
  // `Number("")` would be 0.
  return rewardOf(written.trim() === "" ? written : Number(written), name, plain);
}

/** Returns the reward in a number, or in an object of rewards by name. */
function rewardOf(value: unknown, name: string, path: string): TrajectoryChanges {
  if (!isJson(value)) return { reward: finite(value, "a number", path) };
  const rewards = Object.entries(value).map(([key, given]) => [key, finite(given, `a number at \`${key}\``, path)] as const);
  const chosen = rewards.length === 1 ? rewards[0] : rewards.find(([key]) => key === name);
  if (chosen === undefined) {
    throw new DataError(`${path}: expected a reward \`${name}\`, got ${shown(Object.keys(value))}; set \`rewardName\` to one of them`);
  }
  return { reward: chosen[1], metrics: Object.fromEntries(rewards.map(([key, reward]) => [REWARD_PREFIX + key, reward])) };
}

/** Returns a finite number. @throws DataError `E_DATA` for any other value. */
function finite(value: unknown, expected: string, path: string): number {
  if (typeof value === "number" && Number.isFinite(value)) return value;
  throw new DataError(`${path}: expected ${expected}, got ${shown(value)}`);
}

function parsed(text: string, path: string): unknown {
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
