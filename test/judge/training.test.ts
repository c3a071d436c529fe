/** Training runs whose reward is a judge. */
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { defineEnvironment } from "../../src/library/environment/index.ts";
import { relativeJudge } from "../../src/library/judge/index.ts";
import { TooManyExceptionsError } from "../../src/library/rollout/index.ts";
import { environment, readLines, setUp, start } from "../train/support.ts";
import { judgeOf, rightEntries, scoresText } from "./support.ts";

/** Returns a score that depends only on the sampled text. */
const byLength = (text: string) => (text.length % 10) / 10;

describe("a training run with a judge as its reward", () => {
  it("trains on the judge's scores and writes tokens and cost of each step", async () => {
    const given = await setUp();
    const model = judgeOf((request) => scoresText(rightEntries(request, byLength)), {
      prices: { inputPerMillion: 1000, outputPerMillion: 0 },
    });
    const judged = defineEnvironment({ ...environment, groupRewards: [relativeJudge({ model })] });
    await start(given, { steps: 2, environment: judged }).done;
    const rows = await readLines(given.runDir, "metrics.jsonl");
    expect(model.requests).toHaveLength(4);
    for (const row of rows) {
      expect(row).toMatchObject({ "group/judge/prompt_tokens": 100, "group/judge/cost_usd": 0.1, "group/judge/retries": 0 });
      expect(row["reward/mean"]).toBeCloseTo(row["metric/reward/first"] + row["metric/reward/relative"], 10);
    }
    const [group] = await readLines(given.runDir, "trajectories/train/000000.jsonl");
    expect(group.trajectories[0].logs).toEqual([expect.stringMatching(/^judge relative: 0\.\d: it says/)]);
  });

  it("asks the judge nothing again when its work is repeated with a cache", async () => {
    const cacheDir = join((await setUp()).runDir, "..", "cache");
    const counts: number[] = [];
    for (let i = 0; i < 2; i++) {
      const given = await setUp();
      const model = judgeOf((request) => scoresText(rightEntries(request, byLength)));
      const judged = defineEnvironment({ ...environment, groupRewards: [relativeJudge({ model, cacheDir })] });
      await start(given, { steps: 2, environment: judged, seed: 7 }).done;
      counts.push(model.requests.length);
    }
    expect(counts).toEqual([4, 0]);
  });

  it("ends with the judge's problem when more rollouts fail than `maxExceptions` allows, and trains on no invented reward", async () => {
    const given = await setUp();
    const judged = defineEnvironment({ ...environment, groupRewards: [relativeJudge({ model: judgeOf(() => "I like them all.") })] });
    const run = start(given, { steps: 2, environment: judged });
    await expect(run.done).rejects.toBeInstanceOf(TooManyExceptionsError);
    expect(await given.model.step()).toBe(0);
  });
});
