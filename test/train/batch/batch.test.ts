import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { defineEnvironment, reward, type Environment } from "../../../src/library/environment/index.ts";
import { openRun } from "../../../src/lab/experiment/index.ts";
import type { RecordedEvent, TrainRlOptions } from "../../../src/training/train/index.ts";
import { Lines } from "../../progress/screen.ts";
import { environment, readLines, recorded, setUp, start, timelessMetrics, type Scenario } from "../support.ts";

type BatchEnd = RecordedEvent & { readonly type: "batch-end" };

const batchEnds = (events: readonly { readonly type: string }[]) => events.filter(({ type }) => type === "batch-end") as BatchEnd[];
const numberOf = ({ id }: Scenario) => Number(id.split("-").at(-1));

/** Returns an environment with equal rewards in the groups of the scenarios that `isConstant` selects. */
function partlyConstant(isConstant: (number: number) => boolean, name = "tokens"): Environment<Scenario> {
  return defineEnvironment<Scenario>({
    ...environment,
    name,
    rewards: [
      reward("first", ({ scenario, trajectory: { choices } }) =>
        isConstant(numberOf(scenario)) ? 0.5 : (choices[0]?.token_ids?.[0] ?? 0) / 100,
      ),
    ],
  });
}

/** Scenario indices of the groups of a step, in order of completion. */
async function playedIndices(runDir: string, step: number): Promise<number[]> {
  const groups = await readLines(runDir, `trajectories/train/00000${step}.jsonl`);
  return groups.map((group) => group.metadata.scenario_index as number).toSorted((a, b) => a - b);
}

describe("refill", () => {
  it("samples the missing number of groups in rounds until enough are kept, and counts indices over all steps", async () => {
    const given = await setUp();
    // Kept: 0, 3, 6, 9 …
    const events = await recorded(start(given, { environment: partlyConstant((n) => n % 3 !== 0), steps: 2, refill: { maxGroups: 50 } }));
    expect(
      batchEnds(events).map(({ sampled, kept, discarded, discardedScenarios }) => ({ sampled, kept, discarded, discardedScenarios })),
    ).toEqual([
      { sampled: 4, kept: 2, discarded: { constant: 2 }, discardedScenarios: [1, 2] },
      { sampled: 6, kept: 2, discarded: { constant: 4 }, discardedScenarios: [4, 5, 7, 8] },
    ]);
    expect(await playedIndices(given.runDir, 0)).toEqual([0, 1, 2, 3]);
    expect(await playedIndices(given.runDir, 1)).toEqual([4, 5, 6, 7, 8, 9]);
    const rows = await readLines(given.runDir, "metrics.jsonl");
    expect(rows[1]).toMatchObject({
      "batch/sampled_groups": 6,
      "batch/kept_groups": 2,
      "batch/discarded_constant": 4,
      "batch/discarded_small": 0,
      "batch/removed_long": 0,
      "rollout/groups": 6,
      "data/groups": 2,
    });
  });

  it("trains on fewer groups at the limit, and skips the step without any", async () => {
    const given = await setUp();
    const options = { environment: partlyConstant((n) => n !== 2), steps: 2, refill: { maxGroups: 3 } };
    const events = await recorded(start(given, options));
    expect(batchEnds(events).map(({ sampled, kept }) => [sampled, kept])).toEqual([
      [3, 1],
      [3, 0],
    ]);
    const rows = await readLines(given.runDir, "metrics.jsonl");
    expect(rows.map((row) => row.skipped as number)).toEqual([0, 1]);
    expect(rows[0]["data/groups"]).toBe(1);
    const [skip] = events.filter(({ type }) => type === "step-skip");
    expect(skip).toMatchObject({
      step: 1,
      message: expect.stringMatching(/^The filters discarded all 3 sampled groups \(3 constant\)\..*`refill\.maxGroups`/) as unknown,
    });
  });

  it("allows `maxExceptions` as a share of all rollouts of the step, not of one round", async () => {
    const given = await setUp();
    const partly = partlyConstant((n) => n % 2 === 0);
    // One failure in the last round, which has a single group.
    const failing = defineEnvironment<Scenario>({
      ...partly,
      rollout: (scenario, context) =>
        context.group === 3 && context.index === 0 ? Promise.reject(new Error("broken")) : environment.rollout(scenario, context),
    });
    const options = { environment: failing, steps: 1, refill: { maxGroups: 8 } };
    await expect(start(given, { ...options, maxExceptions: 0.1 }).done).resolves.toMatchObject({ steps: 1 });
    await expect(start(await setUp(), { ...options, maxExceptions: 0.05 }).done).rejects.toMatchObject({ code: "E_TOO_MANY_EXCEPTIONS" });
  });

  it("shows the numbers of kept groups in the progress", async () => {
    const lines = new Lines();
    const given = await setUp();
    await start(given, { environment: partlyConstant((n) => n === 1), steps: 1, refill: { maxGroups: 8 }, progress: lines }).done;
    expect(lines.text).toContain("kept 2 of 3 groups (1 constant)");
  });
});

describe("filters", () => {
  it("leave constant groups out of the job, but on disk and in the metrics", async () => {
    const given = await setUp();
    const events = await recorded(start(given, { environment: partlyConstant((n) => n === 1), steps: 1, filters: { constant: true } }));
    expect(batchEnds(events)).toMatchObject([{ sampled: 2, kept: 1, discarded: { constant: 1 }, discardedScenarios: [1] }]);
    const [row] = await readLines(given.runDir, "metrics.jsonl");
    expect(row).toMatchObject({ "rollout/groups": 2, "data/groups": 1 });
    expect(await playedIndices(given.runDir, 0)).toEqual([0, 1]);
  });

  it("do not change a run's job by default", async () => {
    const given = await setUp();
    const events = await recorded(start(given, { environment: partlyConstant((n) => n === 1), steps: 1 }));
    expect(batchEnds(events)).toMatchObject([{ sampled: 2, kept: 2, discarded: {}, removed: {}, passRates: [] }]);
    const [row] = await readLines(given.runDir, "metrics.jsonl");
    expect(row["data/groups"]).toBe(2);
    expect(Object.keys(row as object).filter((name) => name.startsWith("batch/"))).toEqual([]);
  });

  it("remove trajectories by their number of sampled tokens", async () => {
    const given = await setUp();
    const mixed = defineEnvironment<Scenario>({
      ...environment,
      async rollout(scenario, context) {
        const t = await environment.rollout(scenario, context);
        if (context.index === 0 && "sample" in t) await t.sample(context.policy, { maxCompletionTokens: 2, ...context.sampling });
        return t;
      },
    });
    const options = { environment: mixed, steps: 1, filters: { maxCompletionTokens: 2 }, tokenReportEvery: 1 };
    const events = await recorded(start(given, options));
    expect(batchEnds(events)).toMatchObject([{ sampled: 2, kept: 2, removed: { long: 2 } }]);
    const [row] = await readLines(given.runDir, "metrics.jsonl");
    expect(row).toMatchObject({ "rollout/trajectories": 6, "data/trajectories": 4, "batch/removed_long": 2 });
    // Positions refer to the stored group; its first trajectory was removed.
    const trained = await readLines(given.runDir, "trained/000000.jsonl");
    expect(new Set(trained.map(({ trajectory_index }) => trajectory_index as number))).toEqual(new Set([1, 2]));
  });
});

describe("a curriculum", () => {
  const list = Array.from({ length: 6 }, (_, n) => ({ id: `train-${n}` }));
  const listed = (isConstant: (n: number) => boolean) =>
    defineEnvironment<Scenario>({ ...partlyConstant(isConstant), scenarios: { train: list, eval: [] } });

  it("samples scenarios by recorded pass rate, each at most once per step", async () => {
    const given = await setUp();
    // Scenarios 0 to 3 always pass; 4 and 5 have rewards between 0.4 and 1.
    const solved = defineEnvironment<Scenario>({
      ...listed(() => false),
      rewards: [
        reward("right", ({ scenario, trajectory: { choices } }) => (numberOf(scenario) < 4 ? 1 : (choices[0]?.token_ids?.[0] ?? 0) % 2)),
      ],
    });
    const curriculum = { floor: 0.001 };
    const events = await recorded(start(given, { environment: solved, steps: 12, groupSize: 4, curriculum }));
    const keys = batchEnds(events).map(({ passRates }) => passRates.map(({ key }) => key));
    for (const step of keys) expect(new Set(step).size).toBe(2);
    // Every scenario is sampled before any known one, because unknown ones have the maximum weight.
    expect(new Set(keys.flat())).toEqual(new Set(list.map(({ id }) => id)));
    expect(
      keys
        .slice(6)
        .flat()
        .filter((key) => key === "train-4" || key === "train-5").length,
    ).toBeGreaterThan(6);
    const groups = await readLines(given.runDir, "trajectories/train/000003.jsonl");
    expect(groups.map((group) => group.metadata.scenario_id as string).toSorted()).toEqual(keys[3]?.toSorted());
    expect(new Set(groups.map((group) => group.metadata.scenario_index as number))).toEqual(new Set([6, 7]));
    expect(batchEnds(events)[0]?.passRates.every(({ rate }) => rate >= 0 && rate <= 1)).toBe(true);
  });

  it("shares pass rates between scenarios with the same key, and samples from the first `pool` scenarios of a function", async () => {
    const given = await setUp();
    const curriculum = { pool: 3, key: (scenario: Scenario) => (numberOf(scenario) === 0 ? "zero" : "other"), metric: "reward/first" };
    const events = await recorded(start(given, { steps: 3, curriculum }));
    const passRates = batchEnds(events).flatMap((event) => event.passRates);
    expect(new Set(passRates.map(({ key }) => key))).toEqual(new Set(["zero", "other"]));
    const groups = await readLines(given.runDir, "trajectories/train/000002.jsonl");
    for (const group of groups) expect(["train-0", "train-1", "train-2"]).toContain(group.metadata.scenario_id);
    const mean = (rewards: readonly number[]) => rewards.reduce((sum, each) => sum + each, 0) / rewards.length;
    const sorted = groups.toSorted((a, b) => a.metadata.scenario_index - b.metadata.scenario_index);
    const means = sorted.map((group) => mean(group.trajectories.map((each: any) => each.reward as number)));
    expect(batchEnds(events)[2]?.passRates.map(({ rate }) => rate)).toEqual(means.map((each) => expect.closeTo(each, 12) as number));
  });

  it("uses the recorded batches of all earlier steps when rollouts are ahead of training, reproducibly", async () => {
    const options = { steps: 5, maxStepsOffPolicy: 2, isLagExact: true, curriculum: {}, refill: { maxGroups: 4 } };
    const run = async () => {
      const given = await setUp();
      const events = await recorded(start(given, { ...options, environment: listed((n) => n % 2 === 0) }));
      return { batches: batchEnds(events).map(({ seq: _seq, time: _time, ...rest }) => rest), rows: await timelessMetrics(given.runDir) };
    };
    const first = await run();
    expect(first.batches.map(({ step }) => step)).toEqual([0, 1, 2, 3, 4]);
    expect(first.batches.flatMap(({ passRates }) => passRates)).toHaveLength(first.batches.reduce((sum, { sampled }) => sum + sampled, 0));
    expect(await run()).toEqual(first);
  });

  it("is a function of the seed", async () => {
    const [one, two, other] = [await setUp(), await setUp(), await setUp()];
    const run = async (given: Awaited<ReturnType<typeof setUp>>, seed: number) =>
      batchEnds(await recorded(start(given, { environment: listed(() => false), steps: 4, curriculum: {}, seed }))).map(
        ({ passRates }) => passRates,
      );
    const first = await run(one, 1);
    expect(await run(two, 1)).toEqual(first);
    expect(await run(other, 2)).not.toEqual(first);
  });
});

describe("a run on several environments", () => {
  const two = [
    { environment: partlyConstant(() => false, "first"), weight: 3 },
    {
      environment: defineEnvironment<Scenario>({
        ...environment,
        name: "second",
        scenarios: { train: [{ id: "x" }], eval: [{ id: "e" }] },
      }),
    },
  ];

  it("gives each its share of the groups, labels them, and reports metrics and evaluations of each", async () => {
    const given = await setUp();
    await start(given, { environment: two, steps: 2, scenariosPerStep: 4, evaluation: { every: 2 } }).done;
    const groups = await readLines(given.runDir, "trajectories/train/000001.jsonl");
    const played = groups
      .toSorted((a, b) => a.metadata.scenario_index - b.metadata.scenario_index)
      .map(({ metadata }) => [metadata.environment as string, metadata.scenario_id as string]);
    expect(played).toEqual([
      ["first", "train-3"],
      ["first", "train-4"],
      ["second", "x"],
      ["first", "train-5"],
    ]);
    const rows = await readLines(given.runDir, "metrics.jsonl");
    const train = rows.find(({ split, step }) => split === "train" && step === 1);
    expect(train).toMatchObject({ "env/first/rollout/groups": 3, "env/second/rollout/groups": 1, "rollout/groups": 4 });
    expect((3 * train["env/first/reward/mean"] + train["env/second/reward/mean"]) / 4).toBeCloseTo(train["reward/mean"], 12);
    expect(Object.keys(train as object).filter((name) => name.startsWith("env/") && name.includes("time/"))).toEqual([]);
    const evaluation = rows.findLast(({ split }) => split === "eval");
    expect(evaluation).toMatchObject({ "eval/rollout/groups": 3, "eval/env/first/rollout/groups": 2, "eval/env/second/rollout/groups": 1 });
    const scenarios = await (await openRun(given.runDir)).evaluation();
    expect(scenarios.map(({ index, scenario }) => [index, scenario])).toEqual([
      [0, "first/eval-0"],
      [1, "first/eval-1"],
      [2, "second/e"],
    ]);
    const config = JSON.parse(await readFile(join(given.runDir, "config.json"), "utf8")) as object;
    expect(config).toMatchObject({
      environment: "first, second",
      environments: [
        { name: "first", weight: 3 },
        { name: "second", weight: 1 },
      ],
    });
  });

  it("normalizes advantages per environment, unless the settings of the job say otherwise", async () => {
    const deviation = async (train?: TrainRlOptions<Scenario>["train"]) => {
      const given = await setUp();
      await start(given, { environment: two, steps: 1, scenariosPerStep: 4, train }).done;
      return (await readLines(given.runDir, "metrics.jsonl"))[0]["advantage/std"] as number;
    };
    const own = await deviation();
    expect(own).toBe(await deviation({ advantageScope: "environment" }));
    expect(own).not.toBe(await deviation({ advantageScope: "batch" }));
    await expect(deviation({ lossReduction: "constant", lossNormalizer: 2 })).resolves.toBeGreaterThan(0);
  });

  it("keeps a curriculum for each", async () => {
    const given = await setUp();
    const events = await recorded(start(given, { environment: two, steps: 2, scenariosPerStep: 4, curriculum: { pool: 4 } }));
    const passRates = batchEnds(events).flatMap((event) => event.passRates);
    expect(passRates.filter((each) => each.environment === "second").map(({ key }) => key)).toEqual(["x", "x"]);
    expect(passRates.filter((each) => each.environment === "first")).toHaveLength(6);
  });
});

it("records replaced rollouts in the metrics and as live events", async () => {
  const given = await setUp();
  const failed = new Set<number>();
  const failing = defineEnvironment<Scenario>({
    ...environment,
    rollout(scenario, context) {
      if (context.index !== 0 || failed.has(context.group)) return environment.rollout(scenario, context);
      failed.add(context.group);
      return Promise.reject(new Error("once"));
    },
  });
  const run = start(given, { environment: failing, steps: 1, replacements: 1, maxExceptions: 0 });
  const replaced: object[] = [];
  for await (const event of run) if (event.type === "rollout-replace") replaced.push(event);
  expect(replaced).toMatchObject([0, 1].map(() => ({ split: "train", step: 0, index: 0, replacement: 1, exception: { message: "once" } })));
  const [row] = await readLines(given.runDir, "metrics.jsonl");
  expect(row).toMatchObject({ "rollout/replaced": 2, "rollout/exceptions": 0, "rollout/trajectories": 6 });
});

describe("a run directory", () => {
  it("of an earlier version, without the settings and the events of batches, resumes", async () => {
    const [given, calm] = [await setUp(), await setUp()];
    await start(given, { steps: 2 }).done;
    const events = await readLines(given.runDir, "events.jsonl");
    const older = events
      .filter(({ type }) => type !== "batch-end" && type !== "run-end")
      .map((event, seq) => JSON.stringify({ ...event, seq }));
    await writeFile(join(given.runDir, "events.jsonl"), `${older.join("\n")}\n`);
    const config = JSON.parse(await readFile(join(given.runDir, "config.json"), "utf8")) as Record<string, unknown>;
    for (const key of ["environments", "refill", "filters", "curriculum", "replacements", "score_timeouts"]) {
      expect(config[key]).toBeNull();
      delete config[key];
    }
    await writeFile(join(given.runDir, "config.json"), JSON.stringify(config));
    await expect(start(given, { steps: 4 }).done).resolves.toMatchObject({ reason: "completed", steps: 4 });
    await start(calm, { steps: 4 }).done;
    expect(await timelessMetrics(given.runDir)).toEqual(await timelessMetrics(calm.runDir));
    expect(await playedIndices(given.runDir, 2)).toEqual([4, 5]);
  });

  it("does not resume with other settings of its batches", async () => {
    const given = await setUp();
    const options = { steps: 1, refill: { maxGroups: 4 }, curriculum: { pool: 9 } };
    await start(given, options).done;
    for (const changed of [
      { refill: undefined },
      { refill: { maxGroups: 5 } },
      { curriculum: { pool: 8 } },
      { replacements: 1 },
      { filters: {} },
    ]) {
      await expect(start(given, { ...options, ...changed, steps: 2 }).done).rejects.toMatchObject({ code: "E_CONFIG", param: "runDir" });
    }
  });
});

it("resumes after an abort at any event with every option, with the same metrics and batches", async () => {
  const failsOnce = (group: number, seed: number) => (seed + group) % 7 === 0;
  const unreliable = defineEnvironment<Scenario>({
    ...partlyConstant((n) => n % 4 === 1, "first"),
    rollout: (scenario, context) =>
      failsOnce(context.group, context.seed) ? Promise.reject(new Error("unlucky seed")) : environment.rollout(scenario, context),
    groupRewards: [{ name: "rank", weight: 0.1, scoreGroup: ({ trajectories }) => trajectories.map(({ reward: own }) => own > 0.7) }],
  });
  const second = defineEnvironment<Scenario>({
    ...environment,
    name: "second",
    scenarios: { train: Array.from({ length: 5 }, (_, n) => ({ id: `listed-${n}` })), eval: [{ id: "e" }] },
  });
  const options: Partial<TrainRlOptions<Scenario>> = {
    steps: 4,
    environment: [{ environment: unreliable, weight: 2 }, { environment: second }],
    scenariosPerStep: 3,
    evaluation: { every: 2 },
    refill: { maxGroups: 7 },
    filters: { constant: true, maxCompletionTokens: 2 },
    curriculum: { pool: 8 },
    replacements: 6,
  };
  const batchesOf = async (runDir: string) =>
    (await readLines(runDir, "events.jsonl"))
      .filter(({ type }) => type === "batch-end")
      .map(({ seq: _seq, time: _time, ...rest }) => rest as object);
  const calm = await setUp();
  await start(calm, options).done;
  const given = await setUp();
  for (let attempt = 0; attempt < 60; attempt++) {
    const known = attempt === 0 ? 0 : (await readLines(given.runDir, "events.jsonl")).length;
    const controller = new AbortController();
    const run = start(given, { ...options, signal: controller.signal });
    let groups = 0;
    run.events$.subscribe({
      next: ({ seq, type }) => {
        if (type === "group-end") groups++;
        const isDue = attempt % 2 === 0 ? groups > attempt % 4 : seq !== null && seq >= known + 1 + (attempt % 5);
        if (isDue) controller.abort(new Error("cut"));
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
  expect(await batchesOf(given.runDir)).toEqual(await batchesOf(calm.runDir));
  expect((await batchesOf(calm.runDir)).some((each: any) => each.sampled > 3)).toBe(true);
  expect(await timelessMetrics(given.runDir)).toEqual(await timelessMetrics(calm.runDir));
  expect((await timelessMetrics(calm.runDir)).some((row: any) => row["rollout/replaced"] > 0)).toBe(true);
});

it.each([
  [{ refill: { maxGroups: 1 } }, "refill.maxGroups"],
  [{ filters: { minCompletionTokens: -1 } }, "filters.minCompletionTokens"],
  [{ filters: { minCompletionTokens: 5, maxCompletionTokens: 4 } }, "filters.maxCompletionTokens"],
  [{ filters: { maxAge: 0.5 } }, "filters.maxAge"],
  [{ curriculum: {} }, "curriculum.pool"],
  [{ curriculum: { pool: 4, target: 1 } }, "curriculum.target"],
  [{ curriculum: { pool: 4, floor: 0 } }, "curriculum.floor"],
  [{ curriculum: { pool: 4, decay: 0 } }, "curriculum.decay"],
  [{ environment: [] }, "environment"],
  [{ environment: [{ environment }, { environment }] }, "environment"],
  [{ environment: [{ environment, weight: 0 }] }, "environment[0].weight"],
  [{ replacements: -1 }, "replacements"],
  [{ scoreTimeouts: true }, "scoreTimeouts"],
])("rejects invalid options of batches: %j", async (options, param) => {
  const given = await setUp();
  expect(() => start(given, options)).toThrow(expect.objectContaining({ code: "E_ARGUMENT", param }) as Error);
});
