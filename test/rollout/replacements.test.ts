import { describe, expect, it } from "vitest";
import { gatherTrajectoryGroups, rolloutSeed, type RolloutContext, type RolloutEvent } from "../../src/library/rollout/index.ts";
import { trajectory } from "../../src/base/trajectory/index.ts";

const SEED = 5;
const GROUP_SIZE = 3;

/** Fails rollouts with the given seeds. */
function failing(seeds: ReadonlySet<number>, contexts: RolloutContext[] = []) {
  return (_: unknown, context: RolloutContext) => {
    contexts.push(context);
    if (seeds.has(context.seed)) throw new TypeError(`seed ${context.seed}`);
    return trajectory({ messages: [{ role: "user", content: "q" }] }).finish({ reward: context.index, metrics: { seed: context.seed } });
  };
}

const seedOf = (group: number, index: number, replacement: number) => rolloutSeed(SEED, group, index + GROUP_SIZE * replacement);

describe("a rollout that fails", () => {
  it("is replaced by a rollout with another seed, without the others of its group", async () => {
    const contexts: RolloutContext[] = [];
    const events: RolloutEvent[] = [];
    const failures = new Set([seedOf(0, 1, 0), seedOf(0, 1, 1)]);
    const [first, second] = await gatherTrajectoryGroups([0, 1], failing(failures, contexts), {
      groupSize: GROUP_SIZE,
      seed: SEED,
      replacements: 2,
      onEvent: (event) => void events.push(event),
    });
    expect(first!.trajectories.map(({ metrics }) => metrics["seed"])).toEqual([seedOf(0, 0, 0), seedOf(0, 1, 2), seedOf(0, 2, 0)]);
    expect(first!.rewards).toEqual([0, 1, 2]);
    expect(contexts).toHaveLength(8);
    expect(first!.exceptions).toEqual([]);
    expect(first!.metrics).toEqual({ "rollout/replaced": 2 });
    expect(first!.logs).toEqual([0, 1].map((k) => `Rollout 1 was replaced after TypeError: seed ${seedOf(0, 1, k)}`));
    expect(second!.metrics).toEqual({});
    expect(events.filter(({ type }) => type === "rollout-replace")).toEqual(
      [1, 2].map((replacement) => ({
        type: "rollout-replace",
        group: 0,
        index: 1,
        attempt: 0,
        replacement,
        exception: expect.objectContaining({ type: "TypeError" }) as unknown,
      })),
    );
  });

  it("counts for `maxExceptions` only after its last replacement", async () => {
    const failures = new Set([0, 1].map((k) => seedOf(0, 1, k)));
    const gather = (replacements: number, maxExceptions: number) =>
      gatherTrajectoryGroups([0], failing(failures), { groupSize: GROUP_SIZE, seed: SEED, replacements, maxExceptions });
    await expect(gather(2, 0)).resolves.toHaveLength(1);
    await expect(gather(1, 0)).rejects.toMatchObject({ code: "E_TOO_MANY_EXCEPTIONS" });
    const [group] = await gather(1, 1);
    expect(group!.exceptions).toHaveLength(1);
    expect(group!.metrics).toEqual({ "rollout/replaced": 1 });
  });

  it("is retried with its own seed before it is replaced, and a replacement is retried too", async () => {
    const contexts: RolloutContext[] = [];
    const failures = new Set([seedOf(0, 0, 0)]);
    await gatherTrajectoryGroups([0], failing(failures, contexts), {
      groupSize: 1,
      seed: SEED,
      replacements: 1,
      retries: { limit: 1, when: () => true },
    });
    expect(contexts.map(({ seed, attempt, index }) => [seed, attempt, index])).toEqual([
      [rolloutSeed(SEED, 0, 0), 0, 0],
      [rolloutSeed(SEED, 0, 0), 1, 0],
      [rolloutSeed(SEED, 0, 1), 0, 0],
    ]);
  });

  it("rejects a number of replacements that is not an integer of at least 0", async () => {
    await expect(gatherTrajectoryGroups([0], failing(new Set()), { replacements: -1 })).rejects.toMatchObject({ param: "replacements" });
  });
});
