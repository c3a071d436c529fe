import { afterEach, describe, expect, it } from "vitest";
import { WebSocket } from "ws";
import { defineEnvironment, evaluate, type Environment } from "../../src/library/environment/index.ts";
import {
  connectOpenEnv,
  defineToolEnvironment,
  openEnvEnvironment,
  serveOpenEnv,
  type ServeOptions,
} from "../../src/library/protocols/index.ts";
import { defineTool } from "../../src/library/rollout/agent/index.ts";
import { createScriptedPolicy } from "../../src/testing/index.ts";
import { z } from "zod";
import { exchanges } from "./replay-openenv.ts";
import { released, sums } from "./sums.ts";

const open: { close(): unknown }[] = [];
afterEach(async () => {
  for (const each of open.splice(0).toReversed()) await each.close();
});

async function served<S>(environment: Environment<S>, options?: ServeOptions) {
  const server = await serveOpenEnv(environment, options);
  open.push(server);
  return server;
}

async function session(url: string) {
  const connected = await connectOpenEnv(url);
  open.push(connected);
  return connected;
}

describe("an environment served over OpenEnv", () => {
  it("gives its prompt, tools and reward to our client", async () => {
    const { url } = await served(sums());
    const environment = openEnvEnvironment({
      name: "remote",
      baseUrl: url,
      scenarios: { train: [{}], eval: [{ split: "eval", index: 0 }] },
      messages: ({ messages }) => messages as never,
    });
    const policy = createScriptedPolicy([{ calls: [["add", '{"x":6,"y":7}']] }, { calls: [["submit", '{"answer":"13"}']] }]);
    const { groups } = await evaluate(environment, policy, { samples: 1, progress: false });
    expect(groups[0]?.trajectories[0]?.reward).toBe(0.9);
    expect(policy.requests[0]?.messages).toEqual([{ role: "user", content: "What is 6 + 7?" }]);
    expect(policy.requests[0]?.tools?.map((tool) => tool.function.name)).toEqual(["add", "submit"]);
    expect(policy.requests[1]?.messages.at(-1)?.content).toBe("13 after 1");
  });

  it("answers the recorded requests with messages of the same form as openenv-core", async () => {
    const { url } = await served(sums(), { maxSessions: 1 });
    const socket = new WebSocket(`${url.replace("http", "ws")}/ws`);
    open.push(socket);
    await new Promise((resolve) => socket.once("open", resolve));
    for (const { request, response } of exchanges) {
      const answer = new Promise<string>((resolve) => socket.once("message", (data) => resolve((data as Buffer).toString("utf8"))));
      if (request === null) continue;
      socket.send(typeof request === "string" ? request : JSON.stringify(request));
      const got = JSON.parse(await answer) as typeof response;
      expect([got.type, Object.keys(got.data).toSorted()]).toEqual([response.type, Object.keys(response.data).toSorted()]);
      if (got.type === "error") expect(got.data["code"]).toBe(response.data["code"]);
      const [ours, theirs] = [got, response].map(({ data }) => data["observation"] as Record<string, unknown> | undefined);
      if (theirs !== undefined && "tool_name" in theirs) expect(Object.keys(ours ?? {}).toSorted()).toEqual(Object.keys(theirs).toSorted());
    }
    const second = await connectOpenEnv(url);
    await expect(second.reset()).rejects.toMatchObject({ code: "E_OVERLOADED" });
  });

  it("selects scenarios by index, by seed, or one after the other, and starts again after a reset", async () => {
    const { url } = await served(sums());
    const connected = await session(url);
    const prompt = async (params: Parameters<typeof connected.reset>[0]) => {
      const { observation } = await connected.reset(params);
      return (observation["messages"] as { readonly content: string }[])[0]?.content;
    };
    expect([await prompt({ index: 1 }), await prompt({ seed: 2 }), await prompt({}), await prompt({})]).toEqual([
      "What is 4 + 5?",
      "What is 2 + 3?",
      "What is 2 + 3?",
      "What is 4 + 5?",
    ]);
    expect(await connected.step({ type: "call_tool", tool_name: "submit", arguments: { answer: "9" } })).toMatchObject({
      reward: 1,
      done: true,
    });
    expect((await connected.step({ type: "call_tool", tool_name: "add", arguments: {} })).observation["error"]).toMatchObject({
      message: "the episode has ended; send `reset`",
    });
    expect(await prompt({ episode_id: "mine" })).toBe("What is 2 + 3?");
    expect(await connected.state()).toEqual({ episode_id: "mine", step_count: 0 });
    await expect(connected.reset({ split: "test" })).rejects.toMatchObject({ code: "E_ARGUMENT" });
  });

  it("releases an episode when its client is gone, and when the server is closed", async () => {
    const server = await serveOpenEnv(sums());
    const before = released.count;
    const first = await connectOpenEnv(server.url);
    await first.reset();
    first.close();
    await expect.poll(() => released.count).toBe(before + 1);
    const second = await connectOpenEnv(server.url);
    await second.reset();
    await server.close();
    expect(released.count).toBe(before + 2);
    await expect(second.state()).rejects.toMatchObject({ code: "E_CONNECTION" });
  });

  it("rejects connections of web pages", async () => {
    const { url } = await served(sums());
    await expect(connectOpenEnv(url, { headers: { origin: "https://example.com" } })).rejects.toThrow("403");
    await expect(connectOpenEnv(url, { headers: { host: "attacker.example" } })).rejects.toThrow("403");
  });

  it("answers the HTTP routes, and rejects the ones without a session by name", async () => {
    const { url } = await served(sums());
    const get = async (path: string) => {
      const response = await fetch(url + path);
      return [response.status, await response.json()] as const;
    };
    expect(await get("/health")).toEqual([200, { status: "healthy" }]);
    expect(await get("/metadata")).toMatchObject([200, { name: "Sums" }]);
    expect(await get("/schema")).toMatchObject([200, { action: { type: "object" } }]);
    expect(await get("/mcp")).toEqual([501, { detail: expect.stringContaining("/mcp is not served") as unknown }]);
  });
});

describe("serveOpenEnv", () => {
  it("rejects environments that cannot be served, by name", async () => {
    const own = defineEnvironment({
      name: "chess",
      scenarios: { train: [1], eval: [] },
      rollout: () => Promise.reject(new Error("unused")),
    });
    await expect(serveOpenEnv(own)).rejects.toThrow("Environment `chess` cannot be served: its rollout is code");
    const definition = { name: "x", scenarios: { train: [1], eval: [] }, start: () => ({ messages: [], tools: [] }) };
    expect(() => defineToolEnvironment(definition)).toThrow("Expected environment `x` to have `rewards`");
    const grouped = defineToolEnvironment({
      ...definition,
      rewards: [{ name: "r", score: () => 1 }],
      groupRewards: [{ name: "best", scoreGroup: () => [] }],
    });
    await expect(serveOpenEnv(grouped)).rejects.toThrow("group rewards (`best`)");
  });

  it("rejects tools with the names of the protocol when an episode starts", async () => {
    const tool = (name: string) => defineTool({ name, schema: z.object({}), run: () => "" });
    const environment = (name: string) =>
      defineToolEnvironment({
        name: "x",
        scenarios: { train: [1], eval: [] },
        start: () => ({ messages: [{ role: "user", content: "?" }], tools: [tool(name)] }),
        rewards: [{ name: "r", score: () => 1 }],
      });
    const reserved = await session((await served(environment("state"))).url);
    await expect(reserved.reset()).rejects.toMatchObject({ code: "E_ENVIRONMENT", reason: "FACTORY_ERROR" });
    const taken = await session((await served(environment("submit"))).url);
    await expect(taken.reset()).rejects.toThrow("has a tool `submit`");
  });
});
