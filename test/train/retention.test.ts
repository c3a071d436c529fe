import { describe, expect, it } from "vitest";
import { checkpointScores, checkpointsToDelete } from "../../src/training/train/retention.ts";
import { stateOf, type ResumeState } from "../../src/run/resume-state.ts";
import type { RecordedEvent } from "../../src/run/events.ts";

/** Returns a run: step k was sampled from checkpoint k with the k-th reward; evaluations by checkpoint. */
function run(rewards: readonly number[], evaluations: Readonly<Record<number, number>> = {}): ResumeState {
  const stamp = { seq: 0, time: "" };
  const events: RecordedEvent[] = [
    { ...stamp, type: "run-start", kind: "rl", modelId: "m", checkpointStep: 0, steps: 9 },
    ...rewards.map((reward, step): RecordedEvent => ({
      ...stamp,
      type: "step-end",
      step,
      policyStep: step,
      checkpointStep: step + 1,
      metrics: { reward },
    })),
    ...Object.entries(evaluations).map(([step, value]): RecordedEvent => ({
      ...stamp,
      type: "evaluation-end",
      step: Number(step),
      checkpointStep: Number(step),
      metrics: { "eval/reward": value },
    })),
  ];
  return stateOf(events);
}

const none = new Set<number>();

describe("checkpointsToDelete", () => {
  it("keeps the newest `recent` checkpoints and the run's first one", () => {
    expect(checkpointsToDelete(run([0, 0, 0, 0, 0]), { recent: 2 }, none)).toEqual([1, 2, 3]);
  });

  it("keeps the best checkpoint by the reward of its rollouts", () => {
    // Step 2 sampled from checkpoint 2 and earned most.
    expect(checkpointsToDelete(run([0.1, 0.2, 0.9, 0.3, 0.4]), { recent: 1, best: { metric: "reward", count: 1 } }, none)).toEqual([
      1, 3, 4,
    ]);
    expect(
      checkpointsToDelete(run([0.1, 0.2, 0.9, 0.3, 0.4]), { recent: 1, best: { metric: "reward", count: 1, mode: "min" } }, none),
    ).toEqual([1, 2, 3, 4]);
  });

  it("keeps the best checkpoint by evaluation, the later of equal ones", () => {
    const state = run([0, 0, 0, 0, 0], { 1: 0.7, 2: 0.8, 3: 0.8 });
    expect(checkpointScores(state, "eval/reward")).toEqual(
      new Map([
        [1, 0.7],
        [2, 0.8],
        [3, 0.8],
      ]),
    );
    expect(checkpointsToDelete(state, { recent: 1, best: { metric: "eval/reward", count: 1 } }, none)).toEqual([1, 2, 4]);
  });

  it("keeps leased and pinned checkpoints, and deletes none that do not exist", () => {
    const state = run([0, 0, 0, 0, 0]);
    expect(checkpointsToDelete(state, { recent: 1, pinned: [2] }, new Set([3]))).toEqual([1, 4]);
    const after = stateOf([{ seq: 0, time: "", type: "run-start", kind: "rl", modelId: "m", checkpointStep: 0, steps: 1 }]);
    expect(checkpointsToDelete(after, { recent: 1 }, none)).toEqual([]);
  });
});
