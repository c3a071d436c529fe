import { afterEach, describe, expect, it, vi } from "vitest";
import { ConnectionError, type Service } from "../../src/client/index.ts";
import { gatherTrajectoryGroups, type GatherOptions, type RolloutContext, type RolloutEvent } from "../../src/rollout/index.ts";
import { trajectory, type Policy, type Trajectory } from "../../src/trajectory/index.ts";
import { delay } from "../../src/util/delay.ts";
import { useServer } from "../client/connection.ts";
import { send, type Interceptor } from "../support/nine-routes-server.ts";

const open = useServer();
const finished = (reward: number): Trajectory => trajectory({ messages: [{ role: "user", content: "q" }] }).finish({ reward });
const range = (count: number) => Array.from({ length: count }, (_, index) => index);

const policyOf = ({ chat }: Service): Policy => ({
  id: "tiny",
  step: null,
  complete: (request, options) => chat.completions.create({ ...request, stream: false }, options),
});

/** Samples `turns` turns. */
const talk =
  (turns: number) =>
  async (_: unknown, { policy, sampling }: RolloutContext): Promise<Trajectory> => {
    const t = trajectory({ messages: [{ role: "user", content: "q" }] });
    for (let turn = 0; turn < turns; turn++) await t.sample(policy, sampling);
    return t.finish({ reward: 1 });
  };

/** Refuses the first `count` requests together, once all of them have come, and notes when requests came. */
function refusing(count: number, retryAfterSeconds: string) {
  const arrivals: number[] = [];
  const waiting: (() => void)[] = [];
  let refusedAtMs = NaN;
  let active = 0;
  const seen = { mostAfter: 0 };
  const intercept: Interceptor = async (_, response) => {
    arrivals.push(performance.now());
    if (arrivals.length <= count) {
      if (arrivals.length < count) await new Promise<void>((resolve) => waiting.push(resolve));
      else for (const wake of waiting.splice(0)) wake();
      refusedAtMs = performance.now();
      send(response, 429, { detail: "busy" }, { "retry-after": retryAfterSeconds });
      return true;
    }
    seen.mostAfter = Math.max(seen.mostAfter, ++active);
    await delay(5);
    active--;
    return false;
  };
  return { intercept, arrivals, seen, waitedMs: () => arrivals[count]! - refusedAtMs };
}

describe("a service that answers 429", () => {
  it("is left alone for the announced time, then asked by half as many; nothing fails and no retry is used", async () => {
    const { server, service } = await open({ maxRetries: 0 });
    const refusal = refusing(8, "0.3");
    server.intercept = refusal.intercept;
    const events: RolloutEvent[] = [];
    const groups = await gatherTrajectoryGroups(range(8), talk(1), {
      groupSize: 2,
      concurrency: 8,
      policy: policyOf(service),
      onEvent: (event) => events.push(event),
    });
    expect(groups.stats).toMatchObject({ trajectories: 16, exceptions: 0 });
    // Timers may fire a millisecond early.
    expect(refusal.waitedMs()).toBeGreaterThan(290);
    const changes = events.filter(({ type }) => type === "slow-down" || type === "speed-up");
    expect(changes[0]).toMatchObject({ type: "slow-down", concurrency: 4 });
    expect(changes.filter(({ type }) => type === "slow-down")).toHaveLength(1);
    const allowed = changes.map((change) => ("concurrency" in change ? change.concurrency : 0));
    expect(refusal.seen.mostAfter).toBeLessThanOrEqual(Math.max(...allowed));
    // Each refused request was sent once more; its rollout was not played again.
    expect(refusal.arrivals).toHaveLength(8 + 16);
    expect(events.filter(({ type }) => type === "rollout-start")).toHaveLength(16);
    expect(events.filter(({ type }) => type === "rollout-retry")).toEqual([]);
  });

  it("does not cost a rollout the turns it has, nor its time", async () => {
    const { server, service } = await open({ maxRetries: 0 });
    let requests = 0;
    server.intercept = (_, response) => {
      if (++requests !== 2) return false;
      send(response, 429, { detail: "busy" }, { "retry-after": "0.6" });
      return true;
    };
    const rollout = vi.fn(talk(2));
    const groups = await gatherTrajectoryGroups([0], rollout, { groupSize: 1, timeoutMs: 500, policy: policyOf(service) });
    expect(groups.stats).toMatchObject({ trajectories: 1, exceptions: 0 });
    expect(rollout).toHaveBeenCalledTimes(1);
    expect(requests).toBe(3);
  });

  it("does not hold an abort up", async () => {
    const { server, service } = await open({ maxRetries: 0 });
    const controller = new AbortController();
    const reason = new Error("enough");
    server.intercept = (_, response) => {
      send(response, 429, { detail: "busy" }, { "retry-after": "600" });
      return true;
    };
    const run = gatherTrajectoryGroups(range(20), talk(1), {
      concurrency: 2,
      policy: policyOf(service),
      signal: controller.signal,
      onEvent: ({ type }) => type === "slow-down" && setImmediate(() => controller.abort(reason)),
    });
    await expect(run).rejects.toBe(reason);
  });

  it("is asked by as many as before once it has room again", async () => {
    const events: RolloutEvent[] = [];
    let calls = 0;
    await gatherTrajectoryGroups(
      range(400),
      async () => {
        if (++calls <= 10) throw Object.assign(new Error("busy"), { status: 429 });
        await new Promise(setImmediate);
        return finished(0);
      },
      { groupSize: 1, concurrency: 10, onEvent: (event) => events.push(event) },
    );
    const concurrency = events.flatMap((event) => ("concurrency" in event ? [event.concurrency] : []));
    expect(concurrency).toEqual([5, 6, 7, 8, 9, 10]);
  });

  describe("between successes", () => {
    afterEach(() => void vi.useRealTimers());

    it("starts every back-off from the first delay, also with concurrency 1", async () => {
      vi.useFakeTimers();
      const waits: number[] = [];
      let calls = 0;
      const run = gatherTrajectoryGroups(
        range(12),
        () => {
          // Every other attempt is refused, so a success lies between two refusals.
          if (calls++ % 2 === 0) throw Object.assign(new Error("busy"), { status: 429 });
          return finished(1);
        },
        { groupSize: 1, concurrency: 1, onEvent: (event) => event.type === "slow-down" && waits.push(event.waitMs) },
      );
      let isOver = false;
      void run.finally(() => (isOver = true));
      for (let step = 0; !isOver && step < 1000; step++) await vi.advanceTimersByTimeAsync(1000);
      await run;
      expect(waits).toHaveLength(12);
      // The first delay is at most 250 ms; each further refusal in a row doubles it.
      expect(Math.max(...waits)).toBeLessThanOrEqual(250);
    });
  });
});

describe("another client's 429", () => {
  it.each([
    ["fetch headers", { status: 429, headers: new Headers({ "retry-after": "0.2" }) }],
    ["plain headers", { statusCode: 429, responseHeaders: { "retry-after": "0.2" } }],
    ["milliseconds", { status: 429, headers: { "retry-after-ms": "200" } }],
    ["a response", { response: { status: 429, headers: { "retry-after": "0.2" } } }],
    ["a cause", { cause: { status: 429, headers: { "retry-after": "0.2" } } }],
    ["the last of its own attempts", { name: "RetryError", lastError: { statusCode: 429, responseHeaders: { "retry-after": "0.2" } } }],
  ])("with %s is waited for and does not count", async (_, fields) => {
    const at: number[] = [];
    const events: RolloutEvent[] = [];
    const groups = await gatherTrajectoryGroups(
      [0],
      (_scenario, { attempt }: RolloutContext) => {
        at.push(performance.now());
        expect(attempt).toBe(0);
        if (at.length === 1) throw Object.assign(new Error("busy"), fields);
        return finished(1);
      },
      { groupSize: 1, onEvent: (event) => events.push(event) },
    );
    expect(groups.stats).toMatchObject({ trajectories: 1, exceptions: 0 });
    expect(at[1]! - at[0]!).toBeGreaterThan(190);
    expect(events).toContainEqual({ type: "slow-down", concurrency: 1, waitMs: expect.any(Number) as number });
  });

  describe("without end", () => {
    afterEach(() => void vi.useRealTimers());

    it("is a failure in the end", async () => {
      vi.useFakeTimers();
      let calls = 0;
      const options: GatherOptions = { groupSize: 1, maxExceptions: 1 };
      const run = gatherTrajectoryGroups(
        [0],
        () => {
          calls++;
          throw Object.assign(new Error("busy"), { name: "RateLimitError", status: 429 });
        },
        options,
      );
      let isOver = false;
      void run.finally(() => (isOver = true));
      for (let step = 0; !isOver && step < 100; step++) await vi.advanceTimersByTimeAsync(10_000);
      const [group] = await run;
      expect(group!.exceptions).toMatchObject([{ type: "RateLimitError", message: "busy" }]);
      expect(calls).toBe(51);
    });
  });
});

describe("a POST whose answer began", () => {
  it.each([true, false])("is never repeated (stream: %s)", async (isStream) => {
    const { server, service } = await open({ maxRetries: 3 });
    server.intercept = (_, response) => {
      response.writeHead(200, { "content-type": isStream ? "text/event-stream" : "application/json" });
      response.write(isStream ? ": hello\n\n" : '{"id":', () => response.destroy());
      return true;
    };
    const messages = [{ role: "user", content: "q" }];
    const [group] = await gatherTrajectoryGroups(
      [0],
      async (_, { signal }) => {
        if (isStream) for await (const _chunk of service.chat.completions.create({ messages, stream: true }, { signal }));
        else await service.chat.completions.create({ messages }, { signal });
        return finished(0);
      },
      { groupSize: 1, maxExceptions: 1 },
    );
    expect(group!.exceptions).toMatchObject([{ type: ConnectionError.name }]);
    expect(server.requests).toHaveLength(1);
  });
});
