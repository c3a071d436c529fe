import { describe, expect, it, onTestFinished, vi } from "vitest";
import { ConnectionError, HttpError, ProtocolError } from "../../src/library/client/index.ts";
import { judgeEndpoint, JudgeLimitError, relativeJudge, type JudgeEndpointOptions } from "../../src/library/judge/index.ts";
import type { ChatCompletionRequest } from "../../src/base/schema/index.ts";
import { gatherTrajectoryGroups, type RolloutEvent } from "../../src/library/rollout/index.ts";
import { stopTimers } from "../support/manual-timeout.ts";
import { completionOf, hundredth, judged, judgeServer, rightEntries, rollout, scoresText, type Reply } from "./support.ts";

const REQUEST: ChatCompletionRequest = { model: "any", messages: [{ role: "user", content: "?" }] };
const PRICES = { inputPerMillion: 1000, outputPerMillion: 10_000 };
const answer = (text = "yes") => ({ body: completionOf(text) });

async function endpoint(reply: Parameters<typeof judgeServer>[0], options: Partial<JudgeEndpointOptions> = {}) {
  const server = await judgeServer(reply);
  return { server, judge: judgeEndpoint({ baseUrl: server.baseUrl, model: "large", ...options }) };
}

describe("judgeEndpoint", () => {
  it("sends the model, the key and further headers, and counts requests, tokens and cost", async () => {
    const { server, judge } = await endpoint(() => answer(), { apiKey: "sk-1", headers: { "x-title": "test" }, prices: PRICES });
    const completion = await judge.complete(REQUEST);
    expect(completion.choices[0]?.message.content).toBe("yes");
    expect(server.requests[0]).toMatchObject({
      url: "/v1/chat/completions",
      body: { ...REQUEST, model: "large" },
      headers: { authorization: "Bearer sk-1", "x-title": "test" },
    });
    expect(judge.usage).toEqual({ requests: 1, promptTokens: 100, completionTokens: 10, costUsd: 0.2 });
    await judge.close();
  });

  it("sends no key without `apiKey`, and reports no cost without prices", async () => {
    const { server, judge } = await endpoint(() => answer());
    await judge.complete(REQUEST);
    expect(server.requests[0]?.headers).not.toHaveProperty("authorization");
    expect(judge.usage.costUsd).toBeNull();
    await judge.close();
  });

  it("accepts answers without id, model and usage", async () => {
    const { judge } = await endpoint(() => ({ body: { choices: [{ message: { role: "assistant", content: "ok" } }], usage: null } }));
    expect(await judge.complete(REQUEST)).toMatchObject({ id: "", model: "large", usage: { prompt_tokens: 0 } });
    await judge.close();
  });

  it.each<[string, Reply]>([
    ["429", { status: 429, body: {}, headers: { "retry-after": "0" } }],
    ["503", { status: 503, body: {} }],
    ["500", { status: 500, body: "oops" }],
    ["a closed connection", "close"],
  ])("repeats a request after %s", async (_, reply) => {
    const { server, judge } = await endpoint((__, index) => (index === 0 ? reply : answer()));
    await judge.complete(REQUEST);
    expect(server.requests).toHaveLength(2);
    expect(judge.usage.requests).toBe(1);
    await judge.close();
  });

  it("waits as long as `Retry-After` asks", async () => {
    const { judge } = await endpoint((_, index) => (index === 0 ? { status: 429, body: {}, headers: { "retry-after": "1" } } : answer()));
    const timers = vi.spyOn(globalThis, "setTimeout");
    onTestFinished(() => timers.mockRestore());
    await judge.complete(REQUEST);
    // Backoff alone would wait at most 250 ms.
    expect(timers.mock.calls.map(([, ms]) => ms)).toContain(1000);
    await judge.close();
  });

  it("gives up after `maxRetries`, and at once for an error that lasts", async () => {
    const { server, judge } = await endpoint(() => ({ status: 503, body: { error: { message: "busy" } } }), { maxRetries: 1 });
    await expect(judge.complete(REQUEST)).rejects.toBeInstanceOf(HttpError);
    expect(server.requests).toHaveLength(2);
    const denied = await endpoint(() => ({ status: 401, body: {} }));
    await expect(denied.judge.complete(REQUEST)).rejects.toMatchObject({ status: 401 });
    expect(denied.server.requests).toHaveLength(1);
    await Promise.all([judge.close(), denied.judge.close()]);
  });

  it("reports a timeout as a failed connection, which is retried and does not look like an abort", async () => {
    const { server, judge } = await endpoint(() => "hang", { timeoutMs: 600_000, maxRetries: 1 });
    stopTimers();
    const failure = judge.complete(REQUEST).catch((thrown: unknown) => thrown);
    await expect.poll(() => server.requests.length).toBe(1);
    vi.advanceTimersByTime(600_000);
    const requestsAfterWait = () => {
      vi.advanceTimersByTime(100);
      return server.requests.length;
    };
    await expect.poll(requestsAfterWait).toBe(2);
    vi.advanceTimersByTime(600_000);
    const error = await failure;
    expect(error).toBeInstanceOf(ConnectionError);
    expect(error).toMatchObject({ retryable: true, message: expect.stringContaining("within 600000 ms (`timeoutMs`)") });
    expect(server.requests).toHaveLength(2);
  });

  it("rejects a body that is not a chat completion", async () => {
    const { judge } = await endpoint(() => ({ body: { choices: "none" } }));
    await expect(judge.complete(REQUEST)).rejects.toBeInstanceOf(ProtocolError);
    await judge.close();
  });

  it("runs at most `concurrency` requests at a time", async () => {
    let [running, most] = [0, 0];
    const { judge } = await endpoint(
      async () => {
        most = Math.max(most, ++running);
        await new Promise((resolve) => setTimeout(resolve, 20));
        running--;
        return answer();
      },
      { concurrency: 3 },
    );
    await Promise.all(Array.from({ length: 12 }, () => judge.complete(REQUEST)));
    expect(most).toBe(3);
    await judge.close();
  });

  it("rejects with the signal's reason, also while the request waits in the queue", async () => {
    const { server, judge } = await endpoint(() => "hang", { concurrency: 1 });
    const controller = new AbortController();
    const calls = [1, 2].map(() => judge.complete(REQUEST, { signal: controller.signal }));
    await expect.poll(() => server.requests.length).toBe(1);
    controller.abort(new Error("enough"));
    for (const call of calls) await expect(call).rejects.toThrow("enough");
    expect(server.requests).toHaveLength(1);
  });

  it("does not slow down the rollouts of a run when the judge answers 429", async () => {
    const { server, judge } = await endpoint((_, index) => (index === 0 ? { status: 429, body: {} } : answer()));
    const events: RolloutEvent[] = [];
    const groups = await gatherTrajectoryGroups(
      [0],
      async (_, { signal }) => {
        await judge.complete(REQUEST, { signal });
        return rollout("yes");
      },
      { groupSize: 1, onEvent: (event) => events.push(event) },
    );
    expect(groups.stats).toMatchObject({ trajectories: 1, exceptions: 0 });
    expect(server.requests).toHaveLength(2);
    expect(events.map(({ type }) => type)).not.toContain("slow-down");
    await judge.close();
  });
});

describe("the limits of a judge endpoint", () => {
  it("stop requests when the cost is used up, with an error that names the limit", async () => {
    const { server, judge } = await endpoint(() => answer(), { prices: PRICES, maxCostUsd: 0.5 });
    for (let i = 0; i < 3; i++) await judge.complete(REQUEST);
    const error = await judge.complete(REQUEST).catch((thrown: unknown) => thrown);
    expect(error).toBeInstanceOf(JudgeLimitError);
    expect(error).toMatchObject({
      code: "E_JUDGE_LIMIT",
      retryable: false,
      message: "Judge `large` has used 0.6000 of 0.5 US dollars (`maxCostUsd`); raise the limit to send more requests",
    });
    expect(server.requests).toHaveLength(3);
    await judge.close();
  });

  it("stop requests when the tokens are used up, which fails the rollouts of a group", async () => {
    const right = (request: ChatCompletionRequest) => ({ body: completionOf(scoresText(rightEntries(request, hundredth))) });
    const { judge } = await endpoint(right, { maxTotalTokens: 150 });
    const reward = relativeJudge({ model: judge });
    expect((await judged(reward, [rollout("1")])).rewards).toEqual([0.01]);
    expect((await judged(reward, [rollout("2")])).rewards).toEqual([0.02]);
    const group = await judged(reward, [rollout("3"), rollout("4")]);
    expect(group.rewards).toEqual([]);
    expect(group.exceptions.map(({ message }) => message)).toEqual([1, 2].map(() => expect.stringContaining("(`maxTotalTokens`)")));
    await judge.close();
  });

  it("need token counts from the endpoint", async () => {
    const { judge } = await endpoint(() => ({ body: { choices: [] } }), { maxTotalTokens: 10 });
    await expect(judge.complete(REQUEST)).rejects.toThrow(/reports no `usage`/);
    await judge.close();
  });

  it.each<[string, Partial<JudgeEndpointOptions>]>([
    ["baseUrl", { baseUrl: "localhost:80" }],
    ["baseUrl", { baseUrl: "https://user:pass@host/v1" }],
    ["model", { model: " " }],
    ["apiKey", { apiKey: "a b" }],
    ["prices", { maxCostUsd: 1 }],
    ["prices.inputPerMillion", { prices: { inputPerMillion: -1, outputPerMillion: 0 } }],
    ["maxCostUsd", { maxCostUsd: 0, prices: PRICES }],
    ["maxTotalTokens", { maxTotalTokens: 1.5 }],
    ["concurrency", { concurrency: 0 }],
    ["maxRetries", { maxRetries: -1 }],
    ["timeoutMs", { timeoutMs: 0 }],
  ])("reject an invalid `%s`", (param, change) => {
    const options = { baseUrl: "http://127.0.0.1:1/v1", model: "m", ...change };
    expect(() => judgeEndpoint(options)).toThrow(expect.objectContaining({ code: "E_CONFIG", param }));
  });
});
