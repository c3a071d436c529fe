import { afterEach, describe, expect, it, vi } from "vitest";
import { ConnectionError, type Service } from "../../src/library/client/index.ts";
import { gatherTrajectoryGroups, type GatherOptions, type RolloutContext, type RolloutEvent } from "../../src/library/rollout/index.ts";
import { trajectory, type Policy, type Trajectory } from "../../src/base/trajectory/index.ts";
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

/** Fakes the timers of the runner; sockets and `setImmediate` stay real, so that a server can answer. */
const fakeTimers = () => void vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout", "performance"] });
const tick = () => new Promise<void>((resolve) => setImmediate(resolve));

/** Advances the fake clock in steps of `stepMs` until `run` is over. */
async function played<T>(run: Promise<T>, stepMs: number): Promise<T> {
  let isOver = false;
  void run.finally(() => (isOver = true));
  while (!isOver) {
    await vi.advanceTimersByTimeAsync(stepMs);
    await tick();
  }
  return run;
}

/** Refuses the first `count` requests together, once all of them have come, and notes when requests came by the fake clock. */
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
    for (let turn = 0; turn < 20; turn++) await tick();
    active--;
    return false;
  };
  return { intercept, arrivals, seen, waitedMs: () => arrivals[count]! - refusedAtMs };
}

afterEach(() => void vi.useRealTimers());

describe("a service that answers 429", () => {
  it("gets no request for the announced time, then half the concurrency; no rollout fails and no retry is used", async () => {
    const { server, service } = await open({ maxRetries: 0 });
    const refusal = refusing(8, "0.3");
    server.intercept = refusal.intercept;
    const events: RolloutEvent[] = [];
    fakeTimers();
    const run = gatherTrajectoryGroups(range(8), talk(1), {
      groupSize: 2,
      concurrency: 8,
      policy: policyOf(service),
      onEvent: (event) => events.push(event),
    });
    const groups = await played(run, 1);
    expect(groups.stats).toMatchObject({ trajectories: 16, exceptions: 0 });
    expect(refusal.waitedMs()).toBeGreaterThanOrEqual(300);
    const changes = events.filter(({ type }) => type === "slow-down" || type === "speed-up");
    expect(changes[0]).toEqual({ type: "slow-down", concurrency: 4, waitMs: 300 });
    expect(changes.filter(({ type }) => type === "slow-down")).toHaveLength(1);
    const allowed = changes.map((change) => ("concurrency" in change ? change.concurrency : 0));
    expect(refusal.seen.mostAfter).toBeLessThanOrEqual(Math.max(...allowed));
    // Each refused request was sent once more; its rollout was not played again.
    expect(refusal.arrivals).toHaveLength(8 + 16);
    expect(events.filter(({ type }) => type === "rollout-start")).toHaveLength(16);
    expect(events.filter(({ type }) => type === "rollout-retry")).toEqual([]);
  });

  it("keeps the turns of a rollout, and the pause does not count towards its timeout", async () => {
    const { server, service } = await open({ maxRetries: 0 });
    let requests = 0;
    server.intercept = (_, response) => {
      if (++requests !== 2) return false;
      send(response, 429, { detail: "busy" }, { "retry-after": "0.6" });
      return true;
    };
    const rollout = vi.fn(talk(2));
    fakeTimers();
    // The clock advances only during the pause, which is longer than the timeout.
    const groups = await gatherTrajectoryGroups([0], rollout, {
      groupSize: 1,
      timeoutMs: 500,
      policy: policyOf(service),
      onEvent: (event) => event.type === "slow-down" && setImmediate(() => vi.advanceTimersByTime(event.waitMs)),
    });
    expect(groups.stats).toMatchObject({ trajectories: 1, exceptions: 0 });
    expect(rollout).toHaveBeenCalledTimes(1);
    expect(requests).toBe(3);
  });

  it("slows the run down through requests whose signal the policy derives from the rollout's", async () => {
    const { server, service } = await open({ maxRetries: 0 });
    const events: RolloutEvent[] = [];
    let requests = 0;
    server.intercept = (_, response) => {
      if (++requests !== 1) return false;
      send(response, 429, { detail: "busy" }, { "retry-after": "0.01" });
      return true;
    };
    const policy: Policy = {
      id: "tiny",
      step: null,
      complete: (request, { signal = new AbortController().signal, ...options } = {}) =>
        service.chat.completions.create(
          { ...request, stream: false },
          { ...options, signal: AbortSignal.any([signal, new AbortController().signal]), timeoutMs: 60_000 },
        ),
    };
    const groups = await gatherTrajectoryGroups([0], talk(2), { groupSize: 1, policy, onEvent: (event) => events.push(event) });
    expect(groups.stats).toMatchObject({ trajectories: 1, exceptions: 0 });
    expect(events.filter(({ type }) => type === "rollout-start")).toHaveLength(1);
    expect(events.filter(({ type }) => type === "slow-down")).toHaveLength(1);
    expect(requests).toBe(3);
  });

  it("does not delay an abort by the announced wait", async () => {
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

  it("gets the full concurrency back in steps of a tenth while rollouts succeed", async () => {
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

  it("starts the back-off from the first delay after each success, also with concurrency 1", async () => {
    fakeTimers();
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
    await played(run, 1000);
    expect(waits).toHaveLength(12);
    // The first delay is from 125 to 250 ms; each further refusal in a row doubles it.
    for (const wait of waits) expect(wait).toBeGreaterThanOrEqual(125);
    expect(Math.max(...waits)).toBeLessThanOrEqual(250);
  });
});

describe("another client's 429", () => {
  it.each([
    ["fetch headers", { status: 429, headers: new Headers({ "retry-after": "0.3" }) }],
    ["plain headers", { statusCode: 429, responseHeaders: { "retry-after": "0.3" } }],
    ["milliseconds", { status: 429, headers: { "retry-after-ms": "300" } }],
    ["a response", { response: { status: 429, headers: { "retry-after": "0.3" } } }],
    ["a cause", { cause: { status: 429, headers: { "retry-after": "0.3" } } }],
    ["the last of its own attempts", { name: "RetryError", lastError: { statusCode: 429, responseHeaders: { "retry-after": "0.3" } } }],
  ])("given as %s pauses the run for the announced time and is not a failed attempt", async (_, fields) => {
    fakeTimers();
    let calls = 0;
    const events: RolloutEvent[] = [];
    const run = gatherTrajectoryGroups(
      [0],
      (_scenario, { attempt }: RolloutContext) => {
        expect(attempt).toBe(0);
        if (++calls === 1) throw Object.assign(new Error("busy"), fields);
        return finished(1);
      },
      { groupSize: 1, onEvent: (event) => events.push(event) },
    );
    while (!events.some(({ type }) => type === "slow-down")) await tick();
    expect(events).toContainEqual({ type: "slow-down", concurrency: 1, waitMs: 300 });
    await vi.advanceTimersByTimeAsync(299);
    expect(calls).toBe(1);
    await vi.advanceTimersByTimeAsync(1);
    expect((await run).stats).toMatchObject({ trajectories: 1, exceptions: 0 });
    expect(calls).toBe(2);
  });

  it("is recorded as the rollout's failure after 50 waits", async () => {
    fakeTimers();
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
    const [group] = await played(run, 10_000);
    expect(group!.exceptions).toMatchObject([{ type: "RateLimitError", message: "busy" }]);
    expect(calls).toBe(51);
  });
});

describe("a POST with a response that has begun", () => {
  it.each([true, false])("is not retried (stream: %s)", async (isStream) => {
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
