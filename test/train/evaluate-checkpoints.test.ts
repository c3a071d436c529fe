import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { Writable } from "node:stream";
import { describe, expect, it } from "vitest";
import { compare, openRun } from "../../src/lab/experiment/index.ts";
import { evaluateCheckpoints } from "../../src/training/train/index.ts";
import { temporaryDirectory } from "../service/support.ts";
import { environment, readLines, setUp, start } from "./support.ts";

describe("the evaluation of checkpoints", () => {
  it("stores every checkpoint like an evaluation of a training run, and resumes with the missing scenarios", async () => {
    const { model, runDir: trained } = await setUp();
    await start({ model, runDir: trained }, { steps: 2, evaluation: { every: 2 } }).done;
    const runDir = join(await temporaryDirectory(), "eval");
    const controller = new AbortController();
    const options = { model, environment, runDir, report: false };
    let rollouts = 0;
    // The fourth rollout is the second scenario of the second checkpoint.
    const aborting: typeof environment = {
      ...environment,
      rollout(scenario, context) {
        if (++rollouts === 4) controller.abort(new Error("enough"));
        return environment.rollout(scenario, context);
      },
    };
    const interrupted = evaluateCheckpoints({
      ...options,
      environment: aborting,
      checkpoints: [0, 2],
      concurrency: 1,
      signal: controller.signal,
    });
    await expect(interrupted.done).rejects.toThrow("enough");
    const played = await readFile(join(runDir, "trajectories/eval/000002.jsonl"), "utf8");
    expect(played.trim().split("\n")).toHaveLength(1);

    let shown = "";
    const progress = new Writable({ write: (chunk: Buffer, _, done) => done(void (shown += chunk.toString())) });
    await evaluateCheckpoints({ ...options, checkpoints: [0, 2, 1], progress }).done;
    expect(shown).toContain(
      ": resumes after 1 of 3 checkpoints, with changed settings: evaluation.checkpoints [0,2] → [0,2,1], concurrency 1 → 64\n",
    );
    expect(shown).toMatch(/: evaluation of checkpoint 1: reward \d.*\n(.*\n)*.*: completed after 3 of 3 checkpoints in /u);
    expect((await readFile(join(runDir, "trajectories/eval/000002.jsonl"), "utf8")).startsWith(played)).toBe(true);
    const run = await openRun(runDir);
    expect(run).toMatchObject({ state: "completed", steps: 0, evaluations: [0, 1, 2], config: { kind: "eval", group_size: 1 } });
    // The evaluation of the training run uses the same seeds.
    const own = await openRun(trained);
    expect(await run.evaluation(2)).toEqual(
      (await own.evaluation(2)).map((each) => expect.objectContaining({ rewards: each.rewards }) as object),
    );
    expect((await compare([run.at(0), run.at(1), run.at(2)])).differences.map(({ count }) => count)).toEqual([2, 2]);
    const ends = (await readLines(runDir, "events.jsonl")).filter(({ type }) => type === "evaluation-end");
    expect(ends.map(({ step, checkpoint_step }) => [step, checkpoint_step])).toEqual([
      [0, 0],
      [2, 2],
      [1, 1],
    ]);
    await expect(evaluateCheckpoints({ ...options, checkpoints: [9] }).done).rejects.toThrow(/9/);
    await expect(evaluateCheckpoints({ ...options, checkpoints: [0], samples: 2 }).done).rejects.toMatchObject({ code: "E_CONFIG" });
  });

  it.each([{ samples: 0 }, { temperature: -1 }, { concurrency: 0 }, { seed: 0.5 }])("names the invalid option of %j", async (option) => {
    const { model, runDir } = await setUp();
    const message = expect.stringContaining(`\`${Object.keys(option)[0]}\``);
    expect(() => evaluateCheckpoints({ model, environment, runDir, checkpoints: [0], ...option })).toThrow(
      expect.objectContaining({ code: "E_ARGUMENT", param: Object.keys(option)[0], message }),
    );
  });

  it("rejects no checkpoints, duplicates and an environment without scenarios", async () => {
    const { model, runDir } = await setUp();
    for (const checkpoints of [[], [1, 1], [-1], [0.5]])
      expect(() => evaluateCheckpoints({ model, environment, runDir, checkpoints })).toThrow(/distinct steps of checkpoints/);
    const empty = { ...environment, scenarios: { ...environment.scenarios, eval: [] } };
    expect(() => evaluateCheckpoints({ model, environment: empty, runDir, checkpoints: [0] })).toThrow(
      /`scenarios.eval` of `tokens` is empty/,
    );
  });
});
