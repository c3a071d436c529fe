import { describe, expect, it, vi } from "vitest";
import { ConnectionError, HttpError } from "../../src/library/client/index.ts";
import {
  gatherTrajectoryGroups,
  rolloutSeed,
  streamTrajectoryGroups,
  type RolloutContext,
  type RolloutEvent,
} from "../../src/library/rollout/index.ts";
import { createScriptedPolicy } from "../../src/testing/index.ts";
import { trajectory, type Trajectory } from "../../src/base/trajectory/index.ts";
import { deferred } from "../../src/base/util/deferred.ts";
import { delay } from "../../src/base/util/delay.ts";
import { isRetryable } from "../../src/base/util/retryable.ts";

const finished = (reward: number): Trajectory => trajectory({ messages: [{ role: "user", content: "q" }] }).finish({ reward });
const tick = () => new Promise(setImmediate);

/** Answers with a letter that its seed decides. */
const seeded = createScriptedPolicy(({ seed, temperature }) => ({ text: `${Number(seed) % 97} at ${String(temperature)}` }), {
  id: "m:step2",
});

const answer = async (_: unknown, { policy, sampling }: RolloutContext) => {
  const t = trajectory({ messages: [{ role: "user", content: "q" }] });
  await t.sample(policy, sampling);
  return t.finish({ reward: t.lastText.length });
};

describe("the context of a rollout", () => {
  it("has the policy, the seed and the temperature", async () => {
    const groups = await gatherTrajectoryGroups([0], answer, { groupSize: 2, seed: 4, policy: seeded, temperature: 0.5 });
    expect(groups[0]!.trajectories.map(({ lastText }) => lastText)).toEqual(
      [0, 1].map((index) => `${rolloutSeed(4, 0, index) % 97} at 0.5`),
    );
    const [first] = await gatherTrajectoryGroups([0], answer, { groupSize: 1, policy: seeded });
    expect(first!.trajectories[0]!.lastText).toMatch(/ at 1$/);
  });

  it("throws if `policy` is read and none was given; can be spread without one", async () => {
    const groups = await gatherTrajectoryGroups([0], (_, context) => finished({ ...context }.index), { groupSize: 1 });
    expect(groups[0]!.rewards).toEqual([0]);
    const run = gatherTrajectoryGroups([0], answer, { groupSize: 1 });
    await expect(run).rejects.toMatchObject({ cause: { code: "E_ARGUMENT", param: "policy" } });
  });

  it("reproduces a run from its seed, also selected groups by their indices", async () => {
    const options = { groupSize: 3, seed: 11, policy: seeded };
    const texts = (groups: readonly { readonly trajectories: readonly Trajectory[] }[]) =>
      groups.map(({ trajectories }) => trajectories.map(({ lastText }) => lastText));
    const whole = await gatherTrajectoryGroups(["a", "b", "c", "d"], answer, options);
    expect(texts(await gatherTrajectoryGroups(["a", "b", "c", "d"], answer, { ...options, concurrency: 1 }))).toEqual(texts(whole));
    const seen: number[] = [];
    const rest = await gatherTrajectoryGroups(["d", "b"], answer, {
      ...options,
      indices: [3, 1],
      afterEach: (_, index) => void seen.push(index),
    });
    expect(texts(rest)).toEqual([texts(whole)[3], texts(whole)[1]]);
    expect(rest.map(({ metadata }) => metadata["scenario_index"])).toEqual([3, 1]);
    expect(new Set(seen)).toEqual(new Set([1, 3]));
  });

  it.each([
    { indices: [0] },
    { indices: [1, 1] },
    { indices: [0, -1] },
    { temperature: -1 },
    { temperature: NaN },
    { chatTemplateKwargs: [] as never },
    { concurrencyBy: { key: String, limit: 0 } },
    { concurrencyBy: { key: String } as never },
    { retries: { limit: -1 } },
  ])("rejects %j before anything runs", async (options) => {
    const rollout = vi.fn(() => finished(0));
    await expect(gatherTrajectoryGroups([0, 1], rollout, options)).rejects.toMatchObject({
      code: "E_ARGUMENT",
      param: expect.stringContaining(Object.keys(options)[0]!) as string,
    });
    expect(rollout).not.toHaveBeenCalled();
  });
});

describe("the queue of rollouts", () => {
  it.each([1, 3, 7, 200])("starts all rollouts in order, at most %i at once", async (concurrency) => {
    const begun: string[] = [];
    let running = 0;
    let most = 0;
    const groups = await gatherTrajectoryGroups(
      Array.from({ length: 25 }, (_, scenario) => scenario),
      async (scenario, { index }) => {
        begun.push(`${scenario}.${index}`);
        most = Math.max(most, ++running);
        await tick();
        running--;
        return finished(scenario);
      },
      { groupSize: 3, concurrency },
    );
    expect(begun).toEqual(groups.flatMap((_, scenario) => [0, 1, 2].map((index) => `${scenario}.${index}`)));
    expect(groups.map(({ rewards }) => rewards)).toEqual(Array.from({ length: 25 }, (_, scenario) => [scenario, scenario, scenario]));
    expect(most).toBe(Math.min(concurrency, 75));
  });

  it("resolves without scenarios", async () => {
    await expect(gatherTrajectoryGroups([], answer)).resolves.toEqual([]);
  });
});

describe("concurrencyBy", () => {
  it("limits each key separately, so that no key waits for another", async () => {
    const running: Record<string, number> = { a: 0, b: 0 };
    const most: Record<string, number> = { a: 0, b: 0 };
    const isOpen = deferred<void>();
    const done: string[] = [];
    const run = gatherTrajectoryGroups(
      ["a", "a", "a", "b"],
      async (key) => {
        most[key] = Math.max(most[key]!, ++running[key]!);
        if (key === "a") await isOpen.promise;
        else await tick();
        running[key]!--;
        done.push(key);
        return finished(0);
      },
      { groupSize: 2, concurrency: 4, concurrencyBy: { key: (scenario: string) => scenario, limit: 2 } },
    );
    await expect.poll(() => done).toEqual(["b", "b"]);
    isOpen.resolve();
    expect(await run).toHaveLength(4);
    expect(most).toEqual({ a: 2, b: 2 });
  });

  it("rejects with the error of `key` before anything runs", async () => {
    const rollout = vi.fn(() => finished(0));
    const key = (scenario: number) => {
      if (scenario === 1) throw new Error("no key");
      return "a";
    };
    await expect(gatherTrajectoryGroups([0, 1], rollout, { concurrencyBy: { key, limit: 1 } })).rejects.toThrow("no key");
    expect(rollout).not.toHaveBeenCalled();
  });
});

describe("stopSignal", () => {
  it("starts no new group, completes started groups, and returns them", async () => {
    const stop = new AbortController();
    const begun: string[] = [];
    const groups = await gatherTrajectoryGroups(
      [0, 1, 2, 3],
      async (scenario, { index, signal }) => {
        begun.push(`${scenario}.${index}`);
        if (scenario === 1 && index === 0) stop.abort();
        await tick();
        expect(signal.aborted).toBe(false);
        return finished(scenario);
      },
      { groupSize: 3, concurrency: 2, stopSignal: stop.signal },
    );
    expect(groups.map(({ rewards }) => rewards)).toEqual([
      [0, 0, 0],
      [1, 1, 1],
    ]);
    expect(begun).toEqual(["0.0", "0.1", "0.2", "1.0", "1.1", "1.2"]);
    expect(await gatherTrajectoryGroups([0], () => finished(0), { stopSignal: stop.signal })).toEqual([]);
  });
});

describe("retries", () => {
  it.each([
    ["an error that says retryable", new ConnectionError("reset"), true],
    ["an HTTP error that passes", new HttpError("busy", { status: 503, retryable: true }), true],
    ["an HTTP error that does not", new HttpError("no", { status: 404 }), false],
    ["a time-out", new DOMException("late", "TimeoutError"), true],
    ["another client's 500", Object.assign(new Error("no"), { status: 500 }), true],
    ["another client's 400", Object.assign(new Error("no"), { statusCode: 400, cause: new ConnectionError("x") }), false],
    ["a reset connection below", new Error("fetch failed", { cause: Object.assign(new Error("x"), { code: "ECONNRESET" }) }), true],
    ["a mistake", new TypeError("x is undefined"), false],
    ["no error at all", "text", false],
  ])("%s", async (_, error, expected) => {
    expect(isRetryable(error)).toBe(expected);
    let attempts = 0;
    const [group] = await gatherTrajectoryGroups(
      [0],
      () => {
        attempts++;
        throw error;
      },
      { groupSize: 1, retries: 1, maxExceptions: 1 },
    );
    expect(attempts).toBe(expected ? 2 : 1);
    expect(group!.exceptions).toHaveLength(1);
  });

  it("calls `when` with the error and the attempt", async () => {
    const asked: unknown[] = [];
    const mistake = new TypeError("no");
    await gatherTrajectoryGroups(
      [0],
      () => {
        throw mistake;
      },
      {
        groupSize: 1,
        maxExceptions: 1,
        retries: { limit: 5, when: (error, attempt) => (asked.push([error, attempt]), attempt < 1) },
      },
    );
    expect(asked).toEqual([
      [mistake, 0],
      [mistake, 1],
    ]);
  });
});

describe("onEvent", () => {
  it("reports every event in order", async () => {
    const events: RolloutEvent[] = [];
    await gatherTrajectoryGroups(
      ["fine", "flaky", "bad"],
      (scenario, { attempt }) => {
        if (scenario === "bad") throw new TypeError("bad");
        if (scenario === "flaky" && attempt === 0) throw new ConnectionError("reset");
        return finished(2);
      },
      { groupSize: 1, concurrency: 1, seed: 3, retries: 1, maxExceptions: 1, onEvent: (event) => events.push(event) },
    );
    expect(events).toMatchObject([
      { type: "rollout-start", group: 0, index: 0, attempt: 0, seed: rolloutSeed(3, 0, 0) },
      { type: "rollout-end", group: 0, reward: 2, exception: null },
      { type: "group-end", group: 0, trajectories: 1, exceptions: 0, rewardMean: 2 },
      { type: "rollout-start", group: 1, attempt: 0 },
      { type: "rollout-retry", group: 1, attempt: 0, exception: { type: "ConnectionError" } },
      { type: "rollout-start", group: 1, attempt: 1 },
      { type: "rollout-end", group: 1, attempt: 1, reward: 2 },
      { type: "group-end", group: 1 },
      { type: "rollout-start", group: 2 },
      { type: "rollout-end", group: 2, reward: null, exception: { type: "TypeError", message: "bad" } },
      { type: "group-end", group: 2, trajectories: 0, exceptions: 1, rewardMean: NaN },
    ]);
    expect(events).toHaveLength(11);
  });

  it("ends the run if the callback throws", async () => {
    const broken = new Error("listener");
    const run = gatherTrajectoryGroups([0, 1], () => finished(0), {
      maxExceptions: 99,
      onEvent: () => {
        throw broken;
      },
    });
    await expect(run).rejects.toBe(broken);
  });
});

describe("a stream that is read slowly", () => {
  it("limits the number of unread groups", async () => {
    let played = 0;
    let read = 0;
    let most = 0;
    const rollout = () => {
      played++;
      return finished(1);
    };
    const scenarios = Array.from({ length: 200 }, (_, index) => index);
    for await (const _ of streamTrajectoryGroups(scenarios, rollout, { groupSize: 1, concurrency: 4, maxUnread: 3 })) {
      for (let turn = 0; turn < 3; turn++) await tick();
      most = Math.max(most, played - ++read);
    }
    expect(read).toBe(200);
    expect(most).toBeGreaterThanOrEqual(3);
    // Unread, and finished but held back in their place.
    expect(most).toBeLessThanOrEqual(3 + 4);
  });

  it("can be left or aborted while the limit is reached", async () => {
    const scenarios = Array.from({ length: 50 }, (_, index) => index);
    const options = { groupSize: 1, concurrency: 4, maxUnread: 1 };
    for await (const _ of streamTrajectoryGroups(scenarios, () => finished(1), options)) {
      await delay(5);
      break;
    }
    const controller = new AbortController();
    const reason = new Error("enough");
    const iterator = streamTrajectoryGroups(scenarios, () => finished(1), { ...options, signal: controller.signal })[
      Symbol.asyncIterator
    ]();
    await iterator.next();
    await delay(5);
    controller.abort(reason);
    const drain = async () => {
      while (!(await iterator.next()).done);
    };
    await expect(drain()).rejects.toBe(reason);
  });

  it("rejects `maxUnread: 0`", () => {
    expect(() => streamTrajectoryGroups([0], () => finished(0), { maxUnread: 0 })).toThrow(
      expect.objectContaining({ code: "E_ARGUMENT", param: "maxUnread" }) as Error,
    );
  });
});
