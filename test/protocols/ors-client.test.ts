import { afterEach, describe, expect, it } from "vitest";
import { evaluate } from "../../src/library/environment/index.ts";
import { orsEnvironment } from "../../src/library/protocols/index.ts";
import { createScriptedPolicy } from "../../src/testing/index.ts";
import { exchanges, replayOrs } from "./replay-ors.ts";

const open: { close(): void }[] = [];
afterEach(() => {
  for (const each of open.splice(0)) each.close();
});

async function replay(...args: Parameters<typeof replayOrs>) {
  const server = await replayOrs(...args);
  open.push(server);
  return server;
}

const quiet = { samples: 1, progress: false } as const;
const five = () => createScriptedPolicy([{ calls: [["add", '{"a":2,"b":3}']] }, { text: "It is 5." }]);

/** Environment whose evaluation scenarios are the recorded train split. */
const sums = (baseUrl: string, options: object = {}) => orsEnvironment({ baseUrl, evalSplit: "train", groupWeight: 0, ...options });

async function failureOf(environment: Awaited<ReturnType<typeof sums>>, policy = five()) {
  const first = { ...environment, scenarios: { train: [], eval: environment.scenarios.eval.slice(0, 1) } };
  const { groups } = await evaluate(first, policy, { ...quiet, maxExceptions: 1 });
  return groups[0]?.exceptions[0];
}

describe("an environment on a recorded Open Reward Standard server", () => {
  it("has the server's tasks as scenarios", async () => {
    const { baseUrl } = await replay();
    const environment = await orsEnvironment({ baseUrl });
    expect(environment.name).toBe("sums");
    expect(environment.scenarios.train).toEqual([
      { id: "train/0", split: "train", index: 0 },
      { id: "train/1", split: "train", index: 1 },
    ]);
    expect(environment.scenarios.eval).toEqual([{ id: "held-out/0", split: "held-out", index: 0 }]);
  });

  it("plays a task with the server's prompt, tools and terminal tool, and ends the session", async () => {
    const server = await replay();
    const environment = await sums(server.baseUrl, { apiKey: "key", secrets: { TOKEN: "t" } });
    const policy = five();
    const first = { ...environment, scenarios: { train: [], eval: environment.scenarios.eval.slice(0, 1) } };
    const { groups } = await evaluate(first, policy, quiet);
    const rollout = groups[0]?.trajectories[0];
    expect(rollout?.messages().map(({ content }) => content)).toEqual(["What is 2 + 3?", "", "5", "It is 5."]);
    expect(policy.requests[0]?.tools?.map((tool) => tool.function.name)).toEqual(["add", "fail", "surrender"]);
    expect(rollout?.reward).toBe(1);
    expect(rollout?.metrics).toMatchObject({ episode_reward: 1, "reward/episode": 1 });
    expect(server.received.slice(-8).map(({ path, session }) => [path, session])).toEqual([
      ["/create_session", undefined],
      ["/create", "SESSION"],
      ["/sums/messages", "SESSION"],
      ["/sums/task_tools", "SESSION"],
      ["/sums/call", "SESSION"],
      ["/sums/call", "SESSION"],
      ["/delete", "SESSION"],
      ["/delete_session", "SESSION"],
    ]);
  });

  it("sums the rewards on request, and gives 0 without an answer", async () => {
    const { baseUrl } = await replay();
    const environment = await sums(baseUrl, { reward: "sum", agent: { maxTurns: 1 } });
    const longer = await sums(baseUrl, { reward: "sum" });
    const play = async (each: typeof environment) => {
      const first = { ...each, scenarios: { train: [], eval: each.scenarios.eval.slice(0, 1) } };
      return (await evaluate(first, five(), quiet)).groups[0]?.trajectories[0]?.reward;
    };
    expect(await play(environment)).toBe(0);
    expect(await play(longer)).toBe(1.25);
  });

  it("returns rejected arguments to the model, and fails the rollout if a tool fails", async () => {
    const { baseUrl, received } = await replay();
    const policy = createScriptedPolicy([{ calls: [["add", '{"a":"two"}']] }, { calls: [["fail", "{}"]] }]);
    const exception = await failureOf(await sums(baseUrl), policy);
    expect(exception).toMatchObject({
      type: "EnvironmentError",
      message: expect.stringContaining("the calculator is broken; see the log") as unknown,
    });
    expect(policy.requests[1]?.messages.at(-1)?.content).toMatch(/^Error: Tool input validation error/u);
    expect(received.slice(-2).map(({ path }) => path)).toEqual(["/delete", "/delete_session"]);
  });

  it("scores a group with the server's `score_group`, from the whole conversations", async () => {
    const candidates = exchanges.find(({ path }) => path === "/sums/score_group");
    const bodies: unknown[] = [];
    const { baseUrl } = await replay((path, body) => {
      if (path !== "/sums/score_group") return undefined;
      bodies.push(body);
      return { status: 200, type: "text/event-stream", text: candidates?.text ?? "" };
    });
    const environment = await sums(baseUrl, { groupWeight: 0.5 });
    const first = { ...environment, scenarios: { train: [], eval: environment.scenarios.eval.slice(0, 1) } };
    const policy = createScriptedPolicy(({ messages }) =>
      messages.length > 1 ? { text: "It is 5." } : { calls: [["add", '{"a":2,"b":3}']] },
    );
    const { groups } = await evaluate(first, policy, { samples: 2, progress: false });
    expect(groups[0]?.trajectories.map(({ reward }) => reward)).toEqual([1.5, 5]);
    const [{ candidates: sent }] = bodies as [{ readonly candidates: readonly { readonly messages: readonly object[] }[] }];
    expect(sent[0]?.messages).toMatchObject([
      { role: "user", blocks: [{ type: "text", text: "What is 2 + 3?" }] },
      { role: "assistant", blocks: [{ type: "tool_call", name: "add", input: { a: 2, b: 3 } }] },
      { role: "user", blocks: [{ type: "tool_result", blocks: [{ type: "text", text: "5" }] }] },
      { role: "assistant", blocks: [{ type: "text", text: "It is 5." }] },
    ]);
  });
});

describe("an unreliable Open Reward Standard server", () => {
  it("resumes a stream that breaks after its task id, without repeating the call", async () => {
    const server = await replay((path, _, count) => (path === "/sums/call" && count === 0 ? "drop" : undefined));
    expect(await failureOf(await sums(server.baseUrl))).toBeUndefined();
    const calls = server.received.filter(({ path }) => path === "/sums/call").map(({ body }) => body as { readonly task_id?: string });
    expect(calls.map(({ task_id: id }) => id === undefined)).toEqual([true, false, true]);
  });

  it("waits while an environment starts, and uses the prompt of a server without messages", async () => {
    const starting = { status: 503, text: '{"detail":"starting"}', headers: { "x-backend-state": "starting", "retry-after": "0" } };
    const server = await replay((path, _, count) => {
      if (path === "/sums/messages") return { status: 404, text: '{"detail":"Not Found"}' };
      return path === "/sums/prompt" && count === 0
        ? starting
        : path === "/sums/prompt"
          ? exchanges.find((each) => each.path === path)
          : undefined;
    });
    expect(await failureOf(await sums(server.baseUrl))).toBeUndefined();
    expect(server.received.filter(({ path }) => path === "/sums/prompt")).toHaveLength(2);
  });

  it.each([
    [400, /check the names/u],
    [401, /apiKey/u],
    [404, /set `retries`/u],
    [410, /deleted/u],
    [422, /openreward 0\.1\.157/u],
    [500, /log of the server/u],
  ])("fails the rollout after status %s with a remedy", async (status, message) => {
    const { baseUrl } = await replay((path) => (path === "/create" ? { status, text: '{"detail":"no"}' } : undefined));
    expect(await failureOf(await sums(baseUrl))).toMatchObject({ type: "HttpError", message: expect.stringMatching(message) as unknown });
  });

  it("rejects names that the server does not have, other responses, and an unreachable server", async () => {
    const { baseUrl } = await replay();
    await expect(orsEnvironment({ baseUrl, environment: "chess" })).rejects.toThrow(
      "`environment` to be one of the server's: `sums`; got `chess`",
    );
    await expect(orsEnvironment({ baseUrl, trainSplit: "validation" })).rejects.toMatchObject({ code: "E_CONFIG", param: "trainSplit" });
    const other = await replay(() => ({ status: 200, text: "{}" }));
    await expect(orsEnvironment({ baseUrl: other.baseUrl })).rejects.toMatchObject({ code: "E_PROTOCOL" });
    await expect(orsEnvironment({ baseUrl: "http://127.0.0.1:1" })).rejects.toMatchObject({ code: "E_CONNECTION" });
  });

  it("ends the session of an aborted rollout", async () => {
    const controller = new AbortController();
    const server = await replay();
    const environment = await sums(server.baseUrl);
    const policy = createScriptedPolicy(() => {
      controller.abort(new Error("enough"));
      return { text: "It is 5." };
    });
    await expect(evaluate(environment, policy, { ...quiet, signal: controller.signal })).rejects.toThrow("enough");
    expect(server.received.at(-1)?.path).toBe("/delete_session");
  });
});
