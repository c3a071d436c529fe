import { expect, it, onTestFinished, vi } from "vitest";
import { evaluate } from "../../src/library/environment/index.ts";
import { gatherTrajectoryGroups } from "../../src/library/rollout/index.ts";
import { trajectory } from "../../src/index.ts";
import { RunDisplay, trend } from "../../src/training/train/progress.ts";
import type { LiveEventBody, RecordedEventBody, RunEvent } from "../../src/run/events.ts";
import { stateOf } from "../../src/run/resume-state.ts";
import { Lines, Screen } from "../progress/screen.ts";
import { environment, setUp, start } from "./support.ts";

/** Replaces the parts of a line that depend on the clock. */
const timeless = (text: string) =>
  text.replaceAll(/(?:\d+ (?:h|min|s) ?)+(?= left|[;,\n]|$)/gu, "TIME").replaceAll(/[\d,]+ tokens\/s/gu, "SPEED");

it("prints a line per step of a run, each warning once, and a summary with the counts", async () => {
  const lines = new Lines();
  const given = await setUp();
  await start(given, { progress: lines, evaluation: { every: 2 } }).done;
  const name = given.runDir;
  const printed = timeless(lines.text).trim().split("\n");
  expect(printed.map((line) => line.replace(`${name}: `, "").replaceAll(/[+-]?\d\.\d+/gu, "N"))).toEqual([
    "learning rate N, default for reinforcement learning of all N M parameters",
    "evaluation of checkpoint 0: reward N",
    expect.stringMatching(/^warning sampler-mismatch: \S.*\.$/),
    "1 of 3 steps, reward N, SPEED, TIME left",
    "2 of 3 steps, reward N, SPEED, TIME left",
    "evaluation of checkpoint 2: reward N",
    "3 of 3 steps, reward N (N per step), SPEED",
    "evaluation of checkpoint 3: reward N",
    "completed after 3 of 3 steps in TIME, reward N (N per step); warnings: sampler-mismatch ×3",
  ]);
});

it("shows one block for a run with its rollouts and evaluations, and the runs of one process below each other", async () => {
  const screen = new Screen(200);
  const [one, two] = [await setUp(), await setUp()];
  const runs = [start(one, { progress: screen, steps: 2, evaluation: {} }), start(two, { progress: screen, steps: 2 })];
  const seen: string[] = [];
  const keep = () => seen.push(screen.text);
  for (const run of runs) run.events$.subscribe({ next: keep });
  await Promise.all(runs.map((run) => run.done));
  for (const { runDir } of [one, two]) {
    expect(seen.some((text) => text.includes(`${runDir}  `))).toBe(true);
    expect(screen.text.match(new RegExp(`^${runDir}: completed after 2 of 2 steps`, "gmu"))).toHaveLength(1);
    // Only lines that stay are left: no block.
    expect(screen.text).not.toContain(`${runDir}  `);
  }
});

/** Feeds events to the display of a run of four steps and returns the percentage of the bar after each. */
function percentagesOf(events: readonly (LiveEventBody | RecordedEventBody)[]): number[] {
  const screen = new Screen(200);
  const display = new RunDisplay({ runDir: "run", count: 4, completed: 0, unit: "steps", state: stateOf([]) }, screen);
  const percentages = events.map((body) => {
    display.update({ seq: null, time: "", ...body } as RunEvent);
    // A printed line draws the block at once.
    display.note("drawn");
    return Number(/\] (\d+) %/u.exec(screen.text)?.[1]);
  });
  display.end();
  return percentages;
}

const rollouts = (step: number, completed: number): LiveEventBody => ({
  ...{ type: "rollout-progress", step, split: "train", completed, total: 4 },
  ...{ running: 1, exceptions: 0, rewardMean: 0, completionTokens: 0 },
});
const rolloutsEnd = (step: number) => ({ type: "rollouts-end", step, groups: 4, staleGroups: 0, exceptions: 0, rewardMean: 0 }) as const;
const job = (step: number, completed: number, total: number) => ({ type: "job-progress", step, completed, total }) as const;
const stepEnd = (step: number, metrics = {}) => ({ type: "step-end", step, policyStep: 0, checkpointStep: step + 1, metrics }) as const;

it("counts the rollouts of a step, then its job, and never moves the bar back", () => {
  const scored = { "reward/mean": 0.5 };
  expect(
    percentagesOf([
      ...[rollouts(0, 2), rollouts(0, 4), rolloutsEnd(0), job(0, 0, 1), job(0, 1, 1), stepEnd(0, scored)],
      // A second round of rollouts, then rollouts of the next step while the job runs.
      ...[rollouts(1, 4), rollouts(1, 1), rolloutsEnd(1), job(1, 0, 2), rollouts(2, 2), job(1, 1, 2), rollouts(2, 4), stepEnd(1, scored)],
      ...[rolloutsEnd(2), job(2, 0, 1), job(2, 1, 1), stepEnd(2, scored)],
    ]),
  ).toEqual([6, 12, 12, 12, 25, 25, 37, 37, 37, 37, 37, 43, 43, 62, 62, 62, 75, 75]);
});

it("counts only the job of a supervised step", () => {
  expect(percentagesOf([job(0, 0, 4), job(0, 2, 4), job(0, 4, 4), stepEnd(0), job(1, 1, 4)])).toEqual([0, 12, 25, 25, 31]);
});

it("reports that a run was aborted, or ended by an error, and shows nothing with `progress: false`", async () => {
  const lines = new Lines();
  const given = await setUp();
  const controller = new AbortController();
  const run = start(given, { progress: lines, signal: controller.signal });
  run.events$.subscribe({ next: ({ type }) => type === "step-start" && controller.abort(new Error("enough")), error: () => undefined });
  await expect(run.done).rejects.toThrow("enough");
  expect(lines.text).toMatch(/: stopped after 0 of 3 steps in/);
  expect(lines.text).not.toContain("error");
  const broken = { ...environment, rollout: () => Promise.reject(new Error("broken")) };
  await expect(start({ ...given, runDir: `${given.runDir}-2` }, { progress: lines, environment: broken }).done).rejects.toThrow("broken");
  expect(lines.text).toMatch(/: ended by an error after 0 of 3 steps in/);
  vi.stubEnv("WHETSTONE_PROGRESS", "1");
  onTestFinished(() => void vi.unstubAllEnvs());
  const written = vi.spyOn(process.stderr, "write");
  await start(given, { progress: false }).done;
  expect(written).not.toHaveBeenCalled();
  written.mockRestore();
  expect(() => start(given, { progress: 1 as never })).toThrow(/Expected `progress` to be/);
});

it.each([
  ["sampling", "step-start", /POST http\S+\/chat\/completions got no (?:connection|complete answer)/],
  ["the request of a job", "rollouts-end", /http\S+ got no (?:connection|complete answer)/],
  ["training", "job-start", /GET http\S+\/events\S* got no (?:connection|complete answer)/],
] as const)("says once that a run waits while the service is unavailable during %s", async (_name, last, message) => {
  const lines = new Lines();
  const given = await setUp();
  const controller = new AbortController();
  const run = start(given, { progress: lines, signal: controller.signal, maxStepsOffPolicy: 0 });
  const failures: string[] = [];
  run.events$.subscribe({
    next(event) {
      if (event.type === last) void given.stopService();
      if (event.type !== "service-unavailable") return;
      failures.push(event.message);
      if (failures.length === 3) controller.abort(new Error("enough"));
    },
    error: () => undefined,
  });
  await expect(run.done).rejects.toThrow("enough");
  for (const failure of failures) expect(failure).toMatch(message);
  expect(lines.text.match(/waits for the service, which must run until the run ends: /gu)).toHaveLength(1);
});

it("counts rollouts, failures and tokens of `gatherTrajectoryGroups`, and prints each kind of failure once", async () => {
  const lines = new Lines();
  const rollout = (scenario: number, { index }: { readonly index: number }) => {
    if (index === 1) throw new TypeError(`no answer for ${scenario}`);
    return trajectory({ messages: [] }).finish({ reward: scenario });
  };
  await gatherTrajectoryGroups([1, 2], rollout, { groupSize: 3, maxExceptions: 5, concurrency: 1, progress: lines });
  expect(timeless(lines.text)).toBe(
    "rollouts: rollout failed with TypeError: no answer for 1\nrollouts: 6/6 rollouts, 2 failed, reward 1.500, TIME; failures: TypeError ×2\n",
  );
});

it("reports that rollouts were aborted, or ended by an error", async () => {
  const lines = new Lines();
  const controller = new AbortController();
  const rollout = () => {
    controller.abort(new Error("enough"));
    throw new TypeError("no answer");
  };
  const options = { groupSize: 1, concurrency: 1, progress: lines };
  await expect(gatherTrajectoryGroups([1], rollout, { ...options, signal: controller.signal })).rejects.toThrow("enough");
  expect(lines.text).toMatch(/, stopped\n$/u);
  await expect(gatherTrajectoryGroups([1], rollout, options)).rejects.toThrow("no answer");
  expect(lines.text).toMatch(/, ended by an error\n$/u);
});

it("reports that a resumed run already has more steps than requested", async () => {
  const lines = new Lines();
  const given = await setUp();
  await start(given).done;
  await start(given, { progress: lines, steps: 2 }).done;
  const printed = timeless(lines.text).trim().split("\n");
  expect(printed[0]).toMatch(/: learning rate 0\.0003, as at the start of the run$/u);
  expect(printed[1]).toBe(`${given.runDir}: already has 3 steps, 2 requested`);
  expect(printed.at(-1)).toMatch(/: completed after 3 steps in TIME/u);
  expect(lines.text).not.toContain("of 2 steps");
});

it("names policy and environment of an evaluation", async () => {
  const lines = new Lines();
  const { model } = await setUp();
  await evaluate(environment, await model.policy(), { progress: lines });
  expect(timeless(lines.text)).toMatch(/^evaluation of local\/demo\/m:step0 on tokens: 2\/2 rollouts, reward \d\.\d+, SPEED, TIME\n$/);
});

it("computes the trend as the least-squares slope", () => {
  expect(trend([1, 2])).toBeNull();
  // numpy.polyfit(range(5), [0.1, 0.4, 0.2, 0.8, 0.5], 1)[0]
  expect(trend([0.1, 0.4, 0.2, 0.8, 0.5])).toBeCloseTo(0.12, 12);
});
