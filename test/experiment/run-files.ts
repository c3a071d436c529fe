import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { temporaryDirectory } from "../service/support.ts";

/** Rewards of each scenario's rollouts, by scenario id; null for a scenario with only failed rollouts. */
export type Scores = Readonly<Record<string, readonly number[] | null>>;

/** Contents of a run directory of literal data. */
export interface RunContents {
  readonly config?: object;
  /** Rows of `metrics.jsonl`. */
  readonly metrics?: readonly object[];
  /** Rewards by number of completed steps. */
  readonly evaluations?: Readonly<Record<number, Scores>>;
  readonly events?: readonly object[];
}

const lines = (rows: readonly object[]) => rows.map((row) => `${JSON.stringify(row)}\n`).join("");

function evaluationLines(scores: Scores): string {
  return lines(
    Object.entries(scores).map(([id, rewards], index) => ({
      trajectories: (rewards ?? []).map((reward) => ({
        messages_and_choices: [{ role: "user", content: id }],
        reward,
        metrics: { exact: reward === 1 },
        metadata: { scenario_id: id },
      })),
      exceptions: rewards === null ? [{ type: "Error", message: "failed", traceback: "" }] : [],
      metadata: { scenario_index: index, ...(rewards === null ? {} : { scenario_id: id }) },
      metrics: {},
      logs: [],
    })),
  );
}

/** Writes a run directory below `parent`, or in a new temporary directory, and returns its path. */
export async function writeRunFiles(name: string, contents: RunContents, parent?: string): Promise<string> {
  const { config = { version: 1, kind: "rl" }, metrics = [], evaluations = {}, events = [] } = contents;
  const dir = join(parent ?? (await temporaryDirectory()), name);
  await mkdir(join(dir, "trajectories/eval"), { recursive: true });
  await writeFile(join(dir, "config.json"), JSON.stringify(config));
  await writeFile(join(dir, "metrics.jsonl"), lines(metrics));
  await writeFile(join(dir, "events.jsonl"), lines(events));
  for (const [step, scores] of Object.entries(evaluations))
    await writeFile(join(dir, "trajectories/eval", `${step.padStart(6, "0")}.jsonl`), evaluationLines(scores));
  return dir;
}
