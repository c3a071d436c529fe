import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import {
  defineEnvironment,
  environmentRollout,
  reward,
  type EnvironmentContext,
  type EnvironmentDefinition,
} from "../../src/library/environment/index.ts";
import { gatherTrajectoryGroups, type GatherOptions } from "../../src/library/rollout/index.ts";
import { createScriptedPolicy } from "../../src/testing/index.ts";
import { trajectory } from "../../src/base/trajectory/index.ts";
import { delay } from "../../src/base/util/delay.ts";

const policy = createScriptedPolicy(({ messages }) => ({ text: `answer ${messages.length}` }));
const TIMEOUT_MS = 1000;

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

/** Plays one scenario with group size 1 while the fake clock runs. */
async function play(
  definition: Partial<EnvironmentDefinition<number>> & Pick<EnvironmentDefinition<number>, "rollout">,
  options: GatherOptions<number> = {},
) {
  const environment = defineEnvironment<number>({
    name: "slow",
    scenarios: { train: [1], eval: [] },
    rewards: [reward("length", ({ text }) => text.length)],
    ...definition,
  });
  const rollout = environmentRollout(environment, { scoreTimeouts: true });
  const gathered = gatherTrajectoryGroups([1], rollout, {
    groupSize: 1,
    policy,
    timeoutMs: TIMEOUT_MS,
    maxExceptions: 1,
    progress: false,
    ...options,
  });
  gathered.catch(() => undefined);
  await vi.advanceTimersByTimeAsync(5 * TIMEOUT_MS);
  const [group] = await gathered;
  return group!;
}

/** Samples a turn every 400 ms, with a question after each. */
async function talk(_: number, { policy: own, sampling, signal }: EnvironmentContext): Promise<never> {
  const t = trajectory({ messages: [{ role: "user", content: "q" }] });
  for (;;) {
    await delay(400, { signal });
    await t.sample(own, sampling);
    t.add({ role: "user", content: "a longer question than any answer" });
  }
}

describe("a rollout that times out, with `scoreTimeouts`", () => {
  it("is scored up to its last completed turn and has the metric `timed_out`", async () => {
    const group = await play({ rollout: talk });
    expect(group.exceptions).toEqual([]);
    const [played] = group.trajectories;
    expect(played!.messagesAndChoices).toHaveLength(4);
    expect(played!.lastText).toBe("answer 3");
    expect(played!.reward).toBe("answer 3".length);
    expect(played!.metrics).toMatchObject({ timed_out: 1, "reward/length": 8 });
    expect(played!.metadata["scenario_id"]).toBeDefined();
  });

  it("has `timed_out` 0 if it ends in time", async () => {
    const group = await play({
      async rollout(_, { policy: own, sampling }) {
        const t = trajectory({ messages: [{ role: "user", content: "q" }] });
        await t.sample(own, sampling);
        return t;
      },
    });
    expect(group.trajectories[0]!.metrics["timed_out"]).toBe(0);
  });

  it("includes other histories as far as they got", async () => {
    const group = await play({
      async rollout(_, { policy: own, sampling, signal }) {
        const t = trajectory({ messages: [{ role: "user", content: "q" }] });
        await t.sample(own, sampling);
        const helper = t.history({ messages: [{ role: "user", content: "h" }] });
        await helper.sample(own, sampling);
        await delay(1e6, { signal });
        return t;
      },
    });
    expect(group.trajectories[0]!.additionalHistories).toHaveLength(1);
    expect(group.trajectories[0]!.allChoices).toHaveLength(2);
  });

  it("is scored with its own result if it ignores its signal and returns late", async () => {
    const group = await play({
      async rollout(_, { policy: own, sampling }) {
        const t = trajectory({ messages: [{ role: "user", content: "q" }] });
        await t.sample(own, sampling);
        await delay(2 * TIMEOUT_MS);
        return t.finish({ reward: 0.25 });
      },
      rewards: [],
    });
    expect(group.trajectories[0]).toMatchObject({ reward: 0.25, metrics: { timed_out: 1 } });
  });

  it("fails without a completed turn, without rewards, and while its rewards are computed", async () => {
    const waiting = async (_: number, { signal }: EnvironmentContext) => {
      const t = trajectory({ messages: [{ role: "user", content: "q" }] });
      await delay(1e6, { signal });
      return t;
    };
    const answered = async (_: number, { policy: own, sampling }: EnvironmentContext) => {
      const t = trajectory({ messages: [{ role: "user", content: "q" }] });
      await t.sample(own, sampling);
      return t;
    };
    const slow = reward<number>("slow", async ({ signal }) => {
      await delay(1e6, { signal });
      return 1;
    });
    for (const group of [
      await play({ rollout: waiting }),
      await play({ rollout: talk, rewards: [] }),
      await play({ rollout: answered, rewards: [slow] }),
    ]) {
      expect(group.trajectories).toEqual([]);
      expect(group.exceptions).toMatchObject([{ type: "TimeoutError" }]);
    }
  });

  it("limits the time of the rewards of an interrupted rollout too", async () => {
    const slow = reward<number>("slow", async ({ signal }) => {
      await delay(1e6, { signal });
      return 1;
    });
    const group = await play({ rollout: talk, rewards: [slow] });
    expect(group.exceptions).toMatchObject([{ type: "TimeoutError", message: expect.stringContaining("scoring of rollout 0") as unknown }]);
  });

  it("is neither retried nor replaced", async () => {
    let count = 0;
    const rollout = (scenario: number, context: EnvironmentContext) => {
      count++;
      return talk(scenario, context);
    };
    await play({ rollout }, { retries: 2, replacements: 2 });
    expect(count).toBe(1);
  });
});
