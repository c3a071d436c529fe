import { afterEach, describe, expect, it, vi } from "vitest";
import { evaluate } from "../../src/library/environment/index.ts";
import { connectOpenEnv, EnvironmentError, openEnvEnvironment } from "../../src/library/protocols/index.ts";
import { createScriptedPolicy } from "../../src/testing/index.ts";
import { stopTimers } from "../support/manual-timeout.ts";
import { exchanges, replayOpenEnv, type ReplayServer } from "./replay-openenv.ts";

const open: { close(): void }[] = [];
afterEach(() => {
  for (const each of open.splice(0)) each.close();
});

async function replay(...args: Parameters<typeof replayOpenEnv>): Promise<ReplayServer> {
  const server = await replayOpenEnv(...args);
  open.push(server);
  return server;
}

const counter = (baseUrl: string) =>
  openEnvEnvironment({
    name: "counter",
    baseUrl,
    scenarios: { train: [{ seed: 0, episode_id: "e1" }], eval: [{ seed: 0, episode_id: "e1" }] },
    messages: () => [{ role: "user", content: "Count to 3." }],
  });

const add = (amount: number): [string, string] => ["add", JSON.stringify({ amount })];

describe("an environment on a recorded OpenEnv server", () => {
  it("plays rollouts with the server's tools and sums the rewards of the steps", async () => {
    const server = await replay();
    const policy = createScriptedPolicy([{ calls: [add(2), add(-1)] }, { calls: [add(1), add(1)] }]);
    const { groups } = await evaluate(counter(server.baseUrl), policy, { samples: 1, progress: false });
    const rollout = groups[0]?.trajectories[0];
    expect(rollout?.reward).toBe(1);
    expect(rollout?.metrics).toMatchObject({ turns: 2, tool_calls: 4, tool_errors: 2 });
    expect(
      rollout
        ?.messages()
        .filter(({ role }) => role === "tool")
        .map(({ content }) => content),
    ).toEqual(["2", "Error: Error calling tool 'add': amount must not be negative", "3", "Error: the episode has ended"]);
    expect(policy.requests[0]?.tools?.map((tool) => tool.function.name)).toEqual(["add"]);
    await server.ended;
    expect(server.received).toEqual(["reset", "step", "step", "step", "step", "close"]);
  });

  it("fails the rollout, not the run, when the connection is lost during a tool call", async () => {
    const server = await replay((request) => (request.includes("call_tool") ? "drop" : undefined));
    const policy = createScriptedPolicy([{ calls: [add(2)] }]);
    const { groups } = await evaluate(counter(server.baseUrl), policy, { samples: 1, progress: false, maxExceptions: 1 });
    expect(groups[0]?.exceptions).toMatchObject([
      {
        type: "ConnectionError",
        message: expect.stringMatching(/was lost during `step`: closed with code 1006; .*set `retries`/u) as unknown,
      },
    ]);
  });
});

describe("connectOpenEnv", () => {
  it("returns the state, and rejects every request after a lost connection with the same error", async () => {
    const server = await replay((request) => (request.includes('"step"') ? "drop" : undefined));
    const session = await connectOpenEnv(server.baseUrl);
    expect(await session.state()).toEqual({ episode_id: "e1", step_count: 4 });
    const lost = await session.step({}).catch((error: unknown) => error);
    expect(lost).toMatchObject({ code: "E_CONNECTION", retryable: true });
    await expect(session.reset()).rejects.toBe(lost);
  });

  it.each([
    ["INVALID_JSON", "E_PROTOCOL", /proxy/u],
    ["UNKNOWN_TYPE", "E_PROTOCOL", /openenv-core 0\.3/u],
    ["VALIDATION_ERROR", "E_ARGUMENT", /\(tool_name: Field required\).*GET \/schema/u],
    ["EXECUTION_ERROR", "E_ENVIRONMENT", /log of the server/u],
    ["CAPACITY_REACHED", "E_OVERLOADED", /\(1 of 1 sessions in use\).*max_concurrent_envs/u],
    ["FACTORY_ERROR", "E_ENVIRONMENT", /could not create/u],
    ["SESSION_ERROR", "E_ENVIRONMENT", /retries/u],
    ["SOME_LATER_CODE", "E_ENVIRONMENT", /SOME_LATER_CODE: no$/u],
  ])("maps the error %s to %s with a remedy", async (code, expected, message) => {
    const recorded = exchanges.find(({ response }) => response.data["code"] === code)?.response;
    const server = await replay(() => JSON.stringify(recorded ?? { type: "error", data: { message: "no", code } }));
    const session = await connectOpenEnv(server.baseUrl);
    open.push(session);
    const error: unknown = await session.step({ type: "call_tool" }).catch((thrown: unknown) => thrown);
    expect(error).toMatchObject({ code: expected, message: expect.stringMatching(message) as unknown });
    if (error instanceof EnvironmentError) expect(error.reason).toBe(code);
  });

  it("ends the session when the signal aborts, and when a request takes longer than `timeoutMs`", async () => {
    const silent = await replay(() => null);
    const controller = new AbortController();
    const session = await connectOpenEnv(silent.baseUrl, { signal: controller.signal });
    const reset = session.reset();
    controller.abort(new Error("enough"));
    await expect(reset).rejects.toThrow("enough");
    await silent.ended;
    const slow = await replay(() => null);
    stopTimers();
    const other = await connectOpenEnv(slow.baseUrl, { timeoutMs: 20 });
    const late = other.reset().catch((error: unknown) => error);
    await expect.poll(() => slow.received).toEqual(["reset"]);
    vi.advanceTimersByTime(20);
    expect(await late).toMatchObject({ name: "TimeoutError", message: expect.stringContaining("`reset`") as unknown });
    await slow.ended;
    await expect(other.reset()).rejects.toMatchObject({ name: "TimeoutError" });
  });

  it("rejects other messages than the protocol's, an unreachable server, and invalid options", async () => {
    const server = await replay((request) => (request.includes("reset") ? '{"type":"state","data":{}}' : "nonsense"));
    const session = await connectOpenEnv(server.baseUrl);
    open.push(session);
    await expect(session.reset()).rejects.toThrow("to answer `reset` with `observation`, got `state`");
    await expect(session.step({})).rejects.toMatchObject({ code: "E_PROTOCOL" });
    await expect(connectOpenEnv("http://127.0.0.1:1")).rejects.toMatchObject({ code: "E_CONNECTION", isBeforeSend: true });
    await expect(connectOpenEnv("ws://127.0.0.1:1")).rejects.toMatchObject({ code: "E_CONFIG", param: "baseUrl" });
    await expect(connectOpenEnv("http://127.0.0.1:1", { timeoutMs: 0 })).rejects.toMatchObject({ code: "E_CONFIG", param: "timeoutMs" });
  });
});
