import { readFile } from "node:fs/promises";
import { join } from "node:path";
import type { Logprobs, Row } from "../../engine/port.ts";
import { NotFoundError } from "../../errors.ts";
import type { RowSource } from "../../learner/index.ts";
import type { TrainedTokens, TrainedTrajectory } from "../../schema/index.ts";
import type { DataDirectory } from "../data-directory.ts";
import { writeDurably } from "../files.ts";

/** What the trainer made of each turn: its advantage, and the log-probability of every sampled token before the step. */
export function tokenReport(sources: readonly RowSource[], rows: readonly Row[], logprobs: readonly Logprobs[]): TrainedTokens {
  const found = new Map<string, TrainedTrajectory>();
  for (const [index, { group, trajectory, turns }] of sources.entries()) {
    const key = `${group}.${trajectory}`;
    const entry = found.get(key) ?? { group, trajectory, turns: [] };
    found.set(key, entry);
    for (const { turn, start, length } of turns) {
      const advantage = rows[index]?.advantages?.[start] ?? 0;
      entry.turns.push({ turn, advantage, logprobs: Array.from(logprobs[index]?.subarray(start, start + length) ?? []) });
    }
  }
  return { object: "list", data: [...found.values()] };
}

/** Keeps a job's report. Written before the job's end is committed, so that a job that is over has it. */
export function writeTokenReport(directory: DataDirectory, jobId: string, report: TrainedTokens): Promise<void> {
  return writeDurably(join(directory.tokens, `${jobId}.json`), JSON.stringify(report));
}

/** @throws NotFoundError `E_NOT_FOUND` when the job made none. */
export async function readTokenReport(directory: DataDirectory, jobId: string): Promise<string> {
  try {
    return await readFile(join(directory.tokens, `${jobId}.json`), "utf8");
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code !== "ENOENT") throw cause;
    throw new NotFoundError(
      `Job '${jobId}' has no token report: it is not over, or it was created without \`token_report: true\` in \`experimental_config\``,
      { param: "id" },
    );
  }
}
