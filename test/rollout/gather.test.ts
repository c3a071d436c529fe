import { describe, expect, it, vi } from "vitest";
import { ConnectionError } from "../../src/library/client/index.ts";
import { gatherTrajectoryGroups, rolloutSeed, streamTrajectoryGroups, type RolloutContext } from "../../src/library/rollout/index.ts";
import { trajectory, type Trajectory } from "../../src/base/trajectory/index.ts";
import { deferred } from "../../src/base/util/deferred.ts";
import { delay } from "../../src/base/util/delay.ts";

const finished = (reward: number): Trajectory => trajectory({ messages: [{ role: "user", content: "q" }] }).finish({ reward });
const tick = () => new Promise(setImmediate);

async function rejection(promise: Promise<unknown>): Promise<unknown> {
  return promise.then(
    () => expect.unreachable("expected a rejection"),
    (error: unknown) => error,
  );
}

describe("gatherTrajectoryGroups", () => {
  it("returns scenarios and rollouts in input order, independent of the order of completion", async () => {
    const groups = await gatherTrajectoryGroups(
      [1, 2, 3],
      async (scenario, { index }) => {
        for (let turn = 0; turn < 12 - scenario * 3 - index; turn++) await tick();
        return finished(scenario * 10 + index);
      },
      { groupSize: 3, seed: 5 },
    );
    expect(groups.map(({ rewards }) => rewards)).toEqual([
      [10, 11, 12],
      [20, 21, 22],
      [30, 31, 32],
    ]);
    expect(groups[1]?.metadata).toEqual({ scenario_index: 1, seed: 5 });
    expect(groups.stats.reward.mean).toBeCloseTo(21);
  });

  it("gives each rollout a seed that depends only on seed, scenario and rollout", async () => {
    const seeds = async (concurrency: number) => {
      const seen: number[] = [];
      await gatherTrajectoryGroups([0, 1], (_, { seed, group, index }) => ((seen[group * 4 + index] = seed), finished(0)), {
        groupSize: 4,
        seed: 9,
        concurrency,
      });
      return seen;
    };
    const one = await seeds(1);
    expect(await seeds(8)).toEqual(one);
    expect(new Set(one).size).toBe(8);
    expect(one[5]).toBe(rolloutSeed(9, 1, 1));
    expect(one.every(Number.isSafeInteger)).toBe(true);
    const contexts: RolloutContext[] = [];
    for (let run = 0; run < 2; run++)
      await gatherTrajectoryGroups([0], (_, context) => (contexts.push(context), finished(0)), { groupSize: 1 });
    expect(contexts[0]?.seed).not.toBe(contexts[1]?.seed);
  });

  it("runs at most `concurrency` rollouts at once, and reaches it", async () => {
    let running = 0;
    let most = 0;
    await gatherTrajectoryGroups(
      [1, 2, 3, 4, 5],
      async () => {
        most = Math.max(most, ++running);
        await tick();
        running--;
        return finished(0);
      },
      { groupSize: 4, concurrency: 3 },
    );
    expect(most).toBe(3);
  });

  it("records failures up to `maxExceptions`", async () => {
    const groups = await gatherTrajectoryGroups(
      [0, 1],
      (scenario, { index }) => {
        if (scenario === 1 && index === 0) throw new TypeError("bad tool");
        return finished(index);
      },
      { groupSize: 2, maxExceptions: 1 },
    );
    expect(groups.map(({ rewards }) => rewards)).toEqual([[0, 1], [1]]);
    expect(groups[1]?.exceptions).toMatchObject([
      { type: "TypeError", message: "bad tool", traceback: expect.stringContaining("bad tool") as string },
    ]);
    expect(groups.stats.exceptionRate).toBe(0.25);
  });

  it.each([
    [0.25, 2, true],
    [0.25, 3, false],
    [2, 2, true],
    [2, 3, false],
    [0, 1, false],
  ])("`maxExceptions: %d` allows %i failures of 8: %s", async (maxExceptions, failures, isFine) => {
    let failed = 0;
    const run = gatherTrajectoryGroups(
      [0, 1],
      () => {
        if (failed < failures) {
          failed++;
          throw new Error("no");
        }
        return finished(0);
      },
      { groupSize: 4, maxExceptions, concurrency: 1 },
    );
    if (isFine) expect((await run).stats.exceptions).toBe(failures);
    else await expect(run).rejects.toMatchObject({ code: "E_TOO_MANY_EXCEPTIONS", cause: { message: "no" } });
  });

  it("aborts running rollouts, starts no more and waits for them when too many failed", async () => {
    const cleanup = deferred<void>();
    const began: number[] = [];
    let settled = 0;
    const run = gatherTrajectoryGroups(
      [0, 1, 2, 3],
      async (scenario, { signal }) => {
        began.push(scenario);
        if (scenario === 1) throw new Error("no");
        await new Promise((resolve) => signal.addEventListener("abort", resolve, { once: true }));
        await cleanup.promise;
        settled++;
        throw signal.reason;
      },
      { groupSize: 1, concurrency: 3 },
    );
    let isOver = false;
    void run.catch(() => (isOver = true));
    for (let turn = 0; turn < 5; turn++) await tick();
    expect(isOver).toBe(false);
    cleanup.resolve();
    await expect(run).rejects.toMatchObject({ code: "E_TOO_MANY_EXCEPTIONS", exceptions: [{ message: "no" }] });
    expect(settled).toBe(2);
    expect(began).toEqual([0, 1, 2]);
  });

  it("rejects with the caller's reason after running rollouts have settled, and removes its listeners", async () => {
    const controller = new AbortController();
    const remove = vi.spyOn(controller.signal, "removeEventListener");
    const reason = new Error("enough");
    let settled = 0;
    const run = gatherTrajectoryGroups(
      [0, 1],
      async (_, { signal }) => {
        controller.abort(reason);
        await tick();
        settled++;
        signal.throwIfAborted();
        return finished(0);
      },
      { groupSize: 1, concurrency: 1, signal: controller.signal },
    );
    expect(await rejection(run)).toBe(reason);
    expect(settled).toBe(1);
    expect(remove).toHaveBeenCalled();
    expect(await rejection(gatherTrajectoryGroups([0], () => finished(0), { signal: controller.signal }))).toBe(reason);
  });

  it("records a timeout as a failure, also if the rollout ignores its signal", async () => {
    const groups = await gatherTrajectoryGroups(
      [0, 1],
      async (scenario, { signal }) => {
        const isDeaf = scenario === 1;
        await new Promise((resolve) => signal.addEventListener("abort", resolve, { once: true }));
        if (!isDeaf) signal.throwIfAborted();
        return finished(1);
      },
      { groupSize: 1, timeoutMs: 5, maxExceptions: 2 },
    );
    expect(groups.map(({ exceptions }) => exceptions[0]?.type)).toEqual(["TimeoutError", "TimeoutError"]);
    expect(groups.stats.trajectories).toBe(0);
  });

  it("retries with the same seed and counts only the last attempt", async () => {
    const attempts: RolloutContext[] = [];
    const groups = await gatherTrajectoryGroups(
      [0],
      (_, context) => {
        attempts.push(context);
        if (context.attempt === 0) throw new ConnectionError("flaky");
        return finished(1);
      },
      { groupSize: 1, retries: 2 },
    );
    expect(attempts.map(({ attempt }) => attempt)).toEqual([0, 1]);
    expect(new Set(attempts.map(({ seed }) => seed)).size).toBe(1);
    expect(groups.stats).toMatchObject({ trajectories: 1, exceptions: 0 });
  });

  it("reports progress, and applies `afterEach` to drop, duplicate and keep groups in order", async () => {
    const progress: number[] = [];
    const groups = await gatherTrajectoryGroups([0, 1, 2, 3], (scenario) => finished(scenario), {
      groupSize: 1,
      onProgress: ({ completed, total }) => progress.push(completed / total),
      afterEach: (group, index) => (index === 0 ? null : index === 1 ? [group, group] : undefined),
    });
    expect(groups.flatMap(({ rewards }) => rewards)).toEqual([1, 1, 2, 3]);
    expect(progress).toEqual([0.25, 0.5, 0.75, 1]);
  });

  it("throws programming errors independent of `maxExceptions`", async () => {
    const unfinished = (() => trajectory({ messages: [] })) as never;
    await expect(gatherTrajectoryGroups([0], unfinished, { maxExceptions: 99 })).rejects.toMatchObject({
      code: "E_ARGUMENT",
      message: expect.stringMatching(/return t\.finish/),
    });
    const broken = new Error("callback");
    const run = gatherTrajectoryGroups([0], () => finished(0), {
      maxExceptions: 99,
      afterEach: () => {
        throw broken;
      },
    });
    expect(await rejection(run)).toBe(broken);
  });

  it.each([
    { groupSize: 0 },
    { concurrency: 1.5 },
    { retries: -1 },
    { timeoutMs: 0 },
    { maxExceptions: 1.5 },
    { maxExceptions: -1 },
    { seed: 0.5 },
  ])("rejects %j before anything runs", async (options) => {
    const rollout = vi.fn(() => finished(0));
    await expect(gatherTrajectoryGroups([0], rollout, options)).rejects.toMatchObject({
      code: "E_ARGUMENT",
      param: Object.keys(options)[0],
    });
    expect(rollout).not.toHaveBeenCalled();
  });

  it("returns no groups without scenarios", async () => {
    expect(await gatherTrajectoryGroups([], () => finished(0))).toEqual([]);
  });
});

describe("streamTrajectoryGroups", () => {
  it("yields groups in the order of completion", async () => {
    const rewards: number[] = [];
    const gate = deferred<void>();
    for await (const group of streamTrajectoryGroups(
      [0, 1],
      async (scenario) => {
        if (scenario === 0) await gate.promise;
        return finished(scenario);
      },
      { groupSize: 2 },
    )) {
      rewards.push(...group.rewards);
      gate.resolve();
    }
    expect(rewards).toEqual([1, 1, 0, 0]);
  });

  it("aborts running rollouts and waits for them when the loop is left", async () => {
    let alive = 0;
    for await (const _ of streamTrajectoryGroups(
      [0, 1, 2],
      async (scenario, { signal }) => {
        alive++;
        try {
          if (scenario > 0) await delay(60_000, { signal });
          return finished(scenario);
        } finally {
          alive--;
        }
      },
      { groupSize: 1, concurrency: 2 },
    ))
      break;
    expect(alive).toBe(0);
  });

  it("throws the errors of `gatherTrajectoryGroups`", async () => {
    const run = (async () => {
      for await (const _ of streamTrajectoryGroups(
        [0],
        () => {
          throw new Error("no");
        },
        { groupSize: 1 },
      ));
    })();
    await expect(run).rejects.toMatchObject({ code: "E_TOO_MANY_EXCEPTIONS" });
  });
});
