import { appendFile, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { PassThrough } from "node:stream";
import { firstValueFrom, lastValueFrom, toArray } from "rxjs";
import { describe, expect, it, onTestFinished, vi } from "vitest";
import { defineEnvironment, reward } from "../../src/library/environment/index.ts";
import type { RunEvent } from "../../src/training/train/index.ts";
import { TrajectoryGroup } from "../../src/base/trajectory/index.ts";
import { environment, readLines, recorded, setUp, start, timelessMetrics, type Scenario } from "./support.ts";

const typesOf = (events: readonly { readonly type: string }[]) => events.map(({ type }) => type);

describe("trainRl", () => {
  it("plays, trains and records each step on the checkpoint of the previous step", async () => {
    const given = await setUp();
    const run = start(given);
    const events = await recorded(run);
    const step = ["step-start", "batch-end", "rollouts-end", "job-intent", "job-start", "gradient-step", "warning", "step-end"];
    expect(typesOf(events)).toEqual(["run-start", ...step, ...step, ...step, "run-end"]);
    // The scripted engine samples at −0.5 and trains at −1.
    expect(events.find(({ type }) => type === "warning")).toMatchObject({ code: "sampler-mismatch", jobEventId: expect.any(String) });
    expect(events.map(({ seq }) => seq)).toEqual(events.map((_, index) => index));
    await expect(run.done).resolves.toMatchObject({ reason: "completed", steps: 3, checkpointStep: 3, evaluation: null });
    const rows = await readLines(given.runDir, "metrics.jsonl");
    expect(rows.map(({ step: at, policy_step, checkpoint_step }) => [at, policy_step, checkpoint_step])).toEqual([
      [0, 0, 1],
      [1, 1, 2],
      [2, 2, 3],
    ]);
    const groups = await readLines(given.runDir, "trajectories/train/000001.jsonl");
    expect(new Set(groups.map((group) => group.metadata.scenario_index))).toEqual(new Set([2, 3]));
    expect(groups[0].metadata).toMatchObject({ step: 1, checkpoint_step: 1, policy_version: 1 });
    expect(groups[0].trajectories.every((each: any) => each.initial_policy_version === 1)).toBe(true);
    const rewards = groups.flatMap((group) => group.trajectories.map((each: any) => each.reward as number));
    expect(rows[1]["reward/mean"]).toBeCloseTo(rewards.reduce((a, b) => a + b) / rewards.length, 12);
    expect(rows[1]["metric/reward/first"]).toBeCloseTo(rows[1]["reward/mean"], 12);
    await expect(given.model.step()).resolves.toBe(3);
  });

  it("converts each group twice: once for its file and once for examination and request", async () => {
    const convert = vi.spyOn(TrajectoryGroup.prototype, "toJSON");
    onTestFinished(() => convert.mockRestore());
    const given = await setUp();
    await start(given).done;
    const files = await readdir(join(given.runDir, "trajectories/train"));
    const groups = await Promise.all(files.map((file) => readLines(given.runDir, `trajectories/train/${file}`)));
    expect(groups.flat().length).toBeGreaterThan(0);
    expect(convert).toHaveBeenCalledTimes(2 * groups.flat().length);
  });

  it("gives the same metrics twice, except times", async () => {
    const [one, two] = [await setUp(), await setUp()];
    await Promise.all([start(one, { seed: 5 }).done, start(two, { seed: 5 }).done]);
    expect(await timelessMetrics(one.runDir)).toEqual(await timelessMetrics(two.runDir));
  });

  it.each([0, 2])(
    "resumes after an abort at any event without duplicate jobs or groups: %i steps off-policy",
    async (maxStepsOffPolicy) => {
      const calm = await setUp();
      await start(calm, { steps: 4, evaluation: { every: 2 } }).done;
      const given = await setUp();
      // Two to six events further each time: every kind of event is the last one before a cut sooner or later.
      for (let attempt = 0; attempt < 60; attempt++) {
        const known = attempt === 0 ? 0 : (await readLines(given.runDir, "events.jsonl")).length;
        const controller = new AbortController();
        const run = start(given, { steps: 4, evaluation: { every: 2 }, maxStepsOffPolicy, signal: controller.signal });
        run.events$.subscribe({
          next: ({ seq }) => {
            if (seq !== null && seq >= known + 1 + (attempt % 5)) controller.abort(new Error("cut"));
          },
          error: () => undefined,
        });
        const outcome = await run.done.then(
          () => "over",
          (error: Error) => error.message,
        );
        if (outcome === "over") break;
        expect(outcome).toBe("cut");
      }
      const events = await readLines(given.runDir, "events.jsonl");
      const jobs = events.filter(({ type }) => type === "job-start").map(({ job_id }) => job_id as string);
      expect(new Set(jobs).size).toBe(4);
      const warned = events.filter(({ type }) => type === "warning").map(({ job_event_id }) => job_event_id as string);
      expect(new Set(warned).size).toBe(warned.length);
      expect(events.filter(({ type }) => type === "step-end").map(({ step }) => step)).toEqual([0, 1, 2, 3]);
      for (const step of [0, 1, 2, 3]) {
        const groups = await readLines(given.runDir, `trajectories/train/00000${step}.jsonl`);
        expect(groups).toHaveLength(2);
        expect(new Set(groups.map((group) => group.metadata.scenario_index))).toEqual(new Set([step * 2, step * 2 + 1]));
      }
      await expect(given.model.step()).resolves.toBe(4);
      if (maxStepsOffPolicy === 0) expect(await timelessMetrics(given.runDir)).toEqual(await timelessMetrics(calm.runDir));
    },
  );

  it("rebuilds metrics and checkpoints from the events after a crash, and removes a torn line", async () => {
    const given = await setUp();
    await start(given, { evaluation: { every: 1 } }).done;
    const before = await timelessMetrics(given.runDir);
    await rm(join(given.runDir, "metrics.jsonl"));
    await rm(join(given.runDir, "checkpoints.jsonl"));
    await appendFile(join(given.runDir, "events.jsonl"), '{"seq":99,"type":"step-e');
    await start(given, { evaluation: { every: 1 } }).done;
    expect(await timelessMetrics(given.runDir)).toEqual(before);
    expect((await readLines(given.runDir, "checkpoints.jsonl")).map(({ step }) => step)).toEqual([1, 2, 3]);
  });

  it("plays at most `maxStepsOffPolicy` steps ahead and reports the lag", async () => {
    const given = await setUp();
    const events = await recorded(start(given, { steps: 6, maxStepsOffPolicy: 1 }));
    const rows = await readLines(given.runDir, "metrics.jsonl");
    expect(rows.map((row) => row["off_policy/steps_max"])).toEqual(expect.arrayContaining([0, 1]));
    expect(rows.every((row) => row["off_policy/steps_max"] <= 1 && row["off_policy/stale_groups"] === 0)).toBe(true);
    const starts = events.filter((event) => event.type === "step-start");
    for (const { step, policyVersion } of starts) expect(step - policyVersion).toBeLessThanOrEqual(1);
    // Rollouts of a step begin before the step before it has ended: that is the point.
    const at = (type: string, step: number) => events.findIndex((event) => event.type === type && "step" in event && event.step === step);
    expect(at("step-start", 1)).toBeLessThan(at("step-end", 0));
  });

  it("samples each step from exactly `maxStepsOffPolicy` steps before with `isLagExact`, reproducibly", async () => {
    const [one, two] = [await setUp(), await setUp()];
    const options = { steps: 5, maxStepsOffPolicy: 2, isLagExact: true, keepCheckpoints: { recent: 1 } };
    await Promise.all([start(one, options).done, start(two, options).done]);
    const rows = await timelessMetrics(one.runDir);
    expect(rows).toEqual(await timelessMetrics(two.runDir));
    expect(rows.map((row: any) => row.policy_step)).toEqual([0, 0, 0, 1, 2]);
  });

  it("applies `scoreGroup` before groups are stored and trained", async () => {
    const given = await setUp();
    const scoreGroup = (group: TrajectoryGroup) =>
      group.with({ trajectories: group.trajectories.map((each, rank) => each.with({ reward: rank })) });
    await start(given, { scoreGroup }).done;
    const groups = await readLines(given.runDir, "trajectories/train/000000.jsonl");
    expect(groups.map((group) => group.trajectories.map((each: any) => each.reward as number))).toEqual([
      [0, 1, 2],
      [0, 1, 2],
    ]);
    expect((await readLines(given.runDir, "metrics.jsonl"))[0]["reward/mean"]).toBe(1);
  });

  it("drops and counts groups that are too far off-policy", async () => {
    const given = await setUp();
    const controller = new AbortController();
    const first = start(given, { steps: 4, maxStepsOffPolicy: 2, signal: controller.signal });
    // Step 2's rollouts are on disk, sampled from version 0, before any training is over.
    first.events$.subscribe({
      next: (event) => {
        if (event.type === "group-end" && event.step === 2 && event.scenarioIndex === 5) controller.abort(new Error("cut"));
      },
      error: () => undefined,
    });
    await first.done.catch(() => undefined);
    const ended = (await readLines(given.runDir, "events.jsonl")).filter(({ type }) => type === "step-end").length;
    expect(ended).toBeLessThanOrEqual(2);
    await start(given, { steps: 4, maxStepsOffPolicy: 0 }).done;
    const row = (await readLines(given.runDir, "metrics.jsonl")).find(({ step }) => step === 2);
    const groups = await readLines(given.runDir, "trajectories/train/000002.jsonl");
    const stale = groups.filter((group) => group.metadata.policy_version < 2).length;
    expect(stale).toBeGreaterThan(0);
    expect(row["off_policy/stale_groups"]).toBe(stale);
  });

  it("evaluates before, every so many steps and after training, on the checkpoint of that step", async () => {
    const given = await setUp();
    const result = await start(given, { steps: 5, evaluation: { every: 2, samples: 2 } }).done;
    const rows = (await readLines(given.runDir, "metrics.jsonl")).filter(({ split }) => split === "eval");
    expect(rows.map(({ step, policy_step }) => [step, policy_step])).toEqual([
      [0, 0],
      [2, 2],
      [4, 4],
      [5, 5],
    ]);
    expect(rows[0]["eval/rollout/trajectories"]).toBe(4);
    expect(result.evaluation).toMatchObject({ "eval/reward/mean": rows.at(-1)["eval/reward/mean"] });
  });

  it("keeps the recent, the best and the pinned checkpoints, and deletes the rest on the service", async () => {
    const given = await setUp();
    const keepCheckpoints = { recent: 2, best: { metric: "reward/mean", count: 1 }, pinned: [2] };
    await start(given, { steps: 6, keepCheckpoints }).done;
    const rows = await readLines(given.runDir, "metrics.jsonl");
    const best = rows.toSorted((a, b) => b["reward/mean"] - a["reward/mean"] || b.policy_step - a.policy_step)[0].policy_step as number;
    const left = (await given.model.checkpoints()).map(({ step }) => step);
    expect(new Set(left)).toEqual(new Set([0, 2, 5, 6, best]));
    const deleted = (await readLines(given.runDir, "checkpoints.jsonl")).filter(({ event }) => event === "deleted").map(({ step }) => step);
    expect(new Set([...deleted, ...left])).toEqual(new Set([0, 1, 2, 3, 4, 5, 6]));
  });

  it("keeps the rollouts of every `keepTrajectories.every`-th step and of the newest, and the metrics of all", async () => {
    const given = await setUp();
    const keepTrajectories = { every: 2 };
    await start(given, { steps: 4, keepTrajectories, evaluation: { every: 1 } }).done;
    expect(await readdir(join(given.runDir, "trajectories/train"))).toEqual(["000000.jsonl", "000002.jsonl", "000003.jsonl"]);
    expect(await readdir(join(given.runDir, "trajectories/eval"))).toEqual(["000000.jsonl", "000002.jsonl", "000004.jsonl"]);
    expect(await readLines(given.runDir, "metrics.jsonl")).toHaveLength(9);
    expect(() => start(given, { keepTrajectories: { every: 0 } })).toThrow(/keepTrajectories\.every/);
  });

  it("stops after the current step, and resumes later", async () => {
    const given = await setUp();
    const run = start(given, { steps: 8 });
    await firstValueFrom(run.events$);
    const stopped = await run.stop();
    expect(stopped.reason).toBe("stopped");
    expect(stopped.steps).toBeLessThan(8);
    const rows = await readLines(given.runDir, "metrics.jsonl");
    expect(rows.length).toBe(stopped.steps);
    await expect(start(given, { steps: 8 }).done).resolves.toMatchObject({ reason: "completed", steps: 8 });
  });

  it("ends early when `stopWhen` returns true, also when resumed", async () => {
    const given = await setUp();
    const seen: number[] = [];
    const stopWhen = ({ step, evaluation }: { step: number; evaluation: object | null }) => {
      seen.push(step);
      return evaluation !== null && step >= 1;
    };
    await expect(start(given, { steps: 9, evaluation: { every: 1 }, stopWhen }).done).resolves.toMatchObject({
      reason: "early-stop",
      steps: 2,
    });
    expect(seen).toEqual([0, 1]);
    // It was enough, and still is; more steps are more.
    await expect(start(given, { steps: 9, evaluation: { every: 1 }, stopWhen }).done).resolves.toMatchObject({
      reason: "early-stop",
      steps: 2,
    });
    expect(seen).toEqual([0, 1]);
    await expect(start(given, { steps: 10, evaluation: { every: 1 } }).done).resolves.toMatchObject({ reason: "completed", steps: 10 });
  });

  it("stops after the current step during its evaluation and with rollouts ahead", async () => {
    const given = await setUp();
    const run = start(given, { steps: 9, maxStepsOffPolicy: 2, evaluation: { every: 2 } });
    for await (const event of run) if (event.type === "evaluation-start" && event.step === 2) void run.stop();
    await expect(run.done).resolves.toMatchObject({ reason: "stopped", steps: 2 });
  });

  it("ends after `maxSkippedSteps` steps without anything to learn", async () => {
    const given = await setUp();
    let played = 0;
    // After two steps of six rollouts everything is right.
    const learned = defineEnvironment<Scenario>({ ...environment, rewards: [reward("right", () => (played++ < 12 ? played % 2 : 1))] });
    const run = start(given, { environment: learned, steps: 30, maxSkippedSteps: 3 });
    await expect(run.done).resolves.toMatchObject({ reason: "nothing-to-learn", steps: 5, checkpointStep: 2 });
  });

  it("skips steps with constant rewards, and fails if no step was trained", async () => {
    const given = await setUp();
    const constant = defineEnvironment<Scenario>({ ...environment, rewards: [reward("same", () => 0.5)] });
    const run = start(given, { environment: constant, steps: 9, maxSkippedSteps: 3 });
    await expect(run.done).rejects.toMatchObject({ code: "E_PREFLIGHT" });
    const events = await readLines(given.runDir, "events.jsonl");
    expect(events.filter(({ type }) => type === "step-skip").length).toBe(3);
    expect(events.at(-1)).toMatchObject({ type: "run-fail", code: "E_PREFLIGHT" });
    expect(events.some(({ type }) => type === "job-intent")).toBe(false);
    await expect(given.model.step()).resolves.toBe(0);
  });

  it("records rollout failures in their groups, and fails over `maxExceptions`", async () => {
    const given = await setUp();
    let count = 0;
    const failing = defineEnvironment<Scenario>({
      ...environment,
      rollout: (scenario, context) => {
        if (context.index === 0 && context.group % 2 === 0) return Promise.reject(new Error(`broken ${count++}`));
        return environment.rollout(scenario, context);
      },
    });
    await expect(start(given, { environment: failing, maxExceptions: 1 }).done).resolves.toMatchObject({ steps: 3 });
    const [group] = (await readLines(given.runDir, "trajectories/train/000000.jsonl")).filter((each) => each.metadata.scenario_index === 0);
    expect(group.exceptions).toMatchObject([{ type: "Error", message: "broken 0" }]);
    expect((await readLines(given.runDir, "metrics.jsonl"))[0]["rollout/exceptions"]).toBe(1);
    const other = { ...given, runDir: `${given.runDir}-2` };
    await expect(start(other, { environment: failing, maxExceptions: 0 }).done).rejects.toMatchObject({ code: "E_TOO_MANY_EXCEPTIONS" });
  });

  it("retries a failed job up to `jobRetries` times", async () => {
    let failures = 1;
    const given = await setUp({
      before: ({ verb }) => {
        if (verb === "optimStep" && failures-- > 0) throw new Error("the engine is out of sorts");
      },
    });
    await expect(start(given, { jobRetries: 1 }).done).resolves.toMatchObject({ steps: 3, checkpointStep: 3 });
    const events = await readLines(given.runDir, "events.jsonl");
    expect(events.filter(({ type }) => type === "job-fail")).toMatchObject([{ step: 0, attempt: 0 }]);
    expect(events.filter(({ type }) => type === "job-start").map(({ step, attempt }) => [step, attempt])).toEqual([
      [0, 0],
      [0, 1],
      [1, 0],
      [2, 0],
    ]);
  });

  it("prints the settings that changed at a resume, and keeps the settings of every start", async () => {
    const given = await setUp();
    const train = { learningRate: 1e-3, entropyCoef: 0.01 };
    await start(given, { steps: 1, train }).done;
    const written = new PassThrough();
    const changed = { steps: 2, train: { learningRate: 1e-4 }, evaluation: { every: 2 }, concurrency: 64 };
    await start(given, { ...changed, progress: written }).done;
    await start(given, { ...changed, steps: 3, evaluation: { every: 2, samples: undefined } }).done;
    const starts = (await readLines(given.runDir, "events.jsonl")).filter(({ type }) =>
      ["run-start", "run-resume"].includes(type as string),
    );
    expect(starts.map(({ settings }) => [settings.steps, settings.train])).toEqual([
      [1, { learning_rate: 1e-3, entropy_coef: 0.01 }],
      [2, { learning_rate: 1e-4 }],
      [3, { learning_rate: 1e-4 }],
    ]);
    expect(starts.map(({ changes }) => changes)).toEqual([
      undefined,
      [
        { name: "steps", before: 1, after: 2 },
        { name: "train.learning_rate", before: 1e-3, after: 1e-4 },
        { name: "train.entropy_coef", before: 0.01, after: null },
        { name: "evaluation.every", before: null, after: 2 },
      ],
      [{ name: "steps", before: 2, after: 3 }],
    ]);
    expect(String(written.read())).toContain(
      "resumes after 1 of 2 steps, from checkpoint 1, with changed settings: steps 1 → 2, train.learningRate 0.001 → 0.0001, train.entropyCoef 0.01 → none, evaluation.every none → 2\n",
    );
  });

  it("resumes a run of an earlier version without settings in its events, without changes", async () => {
    const given = await setUp();
    await start(given, { steps: 1 }).done;
    const path = join(given.runDir, "events.jsonl");
    const events = await readLines(given.runDir, "events.jsonl");
    await writeFile(path, events.map((event) => `${JSON.stringify({ ...event, settings: undefined })}\n`).join(""));
    await start(given, { steps: 2 }).done;
    const resumed = (await readLines(given.runDir, "events.jsonl")).find(({ type }) => type === "run-resume");
    expect(resumed).toMatchObject({ changes: [], settings: { steps: 2 } });
  });

  it("rejects a directory of another run or in use", async () => {
    const given = await setUp();
    const run = start(given);
    // Its first event says that the directory is its own: before that, either of two could be the one that is refused.
    await firstValueFrom(run.events$);
    await expect(start(given).done).rejects.toMatchObject({ code: "E_CONFLICT", param: "runDir" });
    await run.done;
    await expect(start(given, { groupSize: 4 }).done).rejects.toMatchObject({
      code: "E_CONFIG",
      message: expect.stringContaining("`group_size` was 3 and is now 4") as string,
    });
    // More steps are the same run.
    await expect(start(given, { steps: 4 }).done).resolves.toMatchObject({ steps: 4 });
    expect(await readdir(given.runDir)).not.toContain("run.lock");
  });

  it.each([
    [{ steps: 0 }, "steps"],
    [{ evaluation: { samples: 0 } }, "evaluation.samples"],
    [{ evaluation: { temperature: -1 } }, "evaluation.temperature"],
    [{ groupSize: 1 }, "groupSize"],
    [{ temperature: -1 }, "temperature"],
    [{ timeoutMs: 0 }, "timeoutMs"],
    [{ maxExceptions: 1.5 }, "maxExceptions"],
    [{ chatTemplateKwargs: [] as never }, "chatTemplateKwargs"],
    [{ maxStepsOffPolicy: -1 }, "maxStepsOffPolicy"],
    [{ evaluation: { every: 0 } }, "evaluation.every"],
    [{ keepCheckpoints: { recent: 0 } }, "keepCheckpoints.recent"],
    [{ keepCheckpoints: { recent: 1, best: { metric: "eval/reward/mean", count: 1 } } }, "keepCheckpoints.best.metric"],
  ])("rejects %j before anything happens", async (options, param) => {
    const given = await setUp();
    expect(() => start(given, options)).toThrow(expect.objectContaining({ code: "E_ARGUMENT", param }) as Error);
    await expect(readFile(join(given.runDir, "config.json"))).rejects.toThrow("ENOENT");
  });

  it("replays recorded events to late subscribers, and continues when a loop is left", async () => {
    const given = await setUp();
    const run = start(given);
    const early = lastValueFrom(run.events$.pipe(toArray()));
    await run.done;
    const late = await lastValueFrom(run.events$.pipe(toArray()));
    const numbered = (events: readonly RunEvent[]) => events.filter(({ seq }) => seq !== null);
    expect(numbered(await early)).toEqual(late);
    expect(typesOf(await early)).toContain("group-end");
    // Leaving a loop leaves the run alone.
    const other = start({ ...given, runDir: `${given.runDir}-2` });
    for await (const event of other) if (event.type === "step-start") break;
    await expect(other.done).resolves.toMatchObject({ steps: 3 });
  });

  it("rejects a run directory that cannot be written", async () => {
    const given = await setUp();
    await writeFile(given.runDir, "");
    const run = start({ ...given, runDir: join(given.runDir, "below") });
    await expect(run.done).rejects.toMatchObject({
      code: "E_CONFIG",
      param: "runDir",
      message: expect.stringMatching(
        /^The run directory '.*' cannot be written: ENOTDIR.*Make it writable, or choose another `runDir`$/u,
      ) as string,
    });
  });
});
