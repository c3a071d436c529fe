import { describe, expect, it } from "vitest";
import { z } from "zod";
import { ArgumentError, ConfigError } from "../../../src/base/errors.ts";
import { defineTool, runAgent, type AgentTool } from "../../../src/library/rollout/agent/index.ts";
import { trajectory, Trajectory } from "../../../src/base/trajectory/index.ts";
import { createScriptedPolicy, type ScriptedTurn } from "../../../src/testing/index.ts";

const add = defineTool({
  name: "add",
  description: "Adds two numbers.",
  schema: z.object({ a: z.number().describe("the first"), b: z.number().default(1) }),
  run: ({ a, b }) => a + b,
});

const fail = defineTool({
  name: "fail",
  description: "Always fails.",
  schema: z.object({}),
  run: () => {
    throw new RangeError("no such place");
  },
});

function start(tools: readonly AgentTool[] = [add, fail]) {
  return trajectory({ messages: [{ role: "user", content: "Go." }], tools });
}

const results = (t: { messages(): { role: string; content?: unknown }[] }) =>
  t
    .messages()
    .filter(({ role }) => role === "tool")
    .map(({ content }) => content);

describe("runAgent", () => {
  it("runs tool calls, appends their results, and stops at a turn without calls", async () => {
    const policy = createScriptedPolicy([{ calls: [["add", '{"a":12,"b":30}']] }, { text: "It is 42." }]);
    const t = start();
    const run = await runAgent(t, policy, { temperature: 1, maxCompletionTokens: 9 });
    expect(run).toEqual({ stopReason: "answer", text: "It is 42.", turns: 2, toolCalls: 1, toolErrors: 0 });
    expect(policy.requests[1]?.messages.slice(1)).toEqual([
      {
        role: "assistant",
        content: "",
        tool_calls: [{ id: "call-1-0", type: "function", function: { name: "add", arguments: '{"a":12,"b":30}' } }],
      },
      { role: "tool", content: "42", tool_call_id: "call-1-0" },
    ]);
    for (const request of policy.requests) expect(request).toMatchObject({ temperature: 1, max_completion_tokens: 9 });
    const finished = t.finish({ reward: 1 });
    expect(finished.metrics).toMatchObject({ turns: 2, tool_calls: 1, tool_errors: 0 });
    for (const name of ["sample_duration", "tools_duration", "tool/add_duration"]) expect(finished.metrics[name]).toBeGreaterThanOrEqual(0);
  });

  it("ends after the tools of a turn when the task is done, without another turn", async () => {
    const policy = createScriptedPolicy([{ calls: [["add", '{"a":1}']] }, { calls: [["add", '{"a":2}']] }]);
    const t = start();
    const run = await runAgent(t, policy, { isDone: () => results(t).includes("3") });
    expect(run).toMatchObject({ stopReason: "done", turns: 2, toolCalls: 2 });
    expect(results(t)).toEqual(["2", "3"]);
  });

  it("offers and records each tool only as JSON Schema of its input", async () => {
    const policy = createScriptedPolicy([{ text: "no" }]);
    const t = start([add]);
    await runAgent(t, policy);
    const parameters = {
      type: "object",
      properties: { a: { type: "number", description: "the first" }, b: { type: "number", default: 1 } },
      required: ["a"],
    };
    const wire = [{ type: "function", function: { name: "add", description: "Adds two numbers.", parameters } }];
    expect(JSON.parse(JSON.stringify(policy.requests[0]?.tools))).toEqual(wire);
    const finished = t.finish({ reward: 0 });
    expect(JSON.parse(JSON.stringify(finished)).tools).toEqual(wire);
    expect(Trajectory.fromJSON(JSON.parse(JSON.stringify(finished))).tools).toEqual(wire);
  });

  it.each<[string, string | null, string, RegExp]>([
    ["text that is not JSON", '{"a":', "add", /^Error: the arguments are not valid JSON/],
    ["JSON that is no object", "[1]", "add", /^Error: the arguments must be a JSON object$/],
    ["arguments that do not fit", '{"a":"x"}', "add", /^Error: the arguments do not fit: .*number.*at a/s],
    ["no arguments", null, "add", /^Error: the arguments do not fit/],
    ["an unknown tool", "{}", "sub", /^Error: there is no tool `sub`; the tools are: add, fail$/],
    ["a tool that throws", "{}", "fail", /^Error: no such place$/],
  ])("returns %s to the model as an error and continues", async (_, args, name, message) => {
    const t = start();
    const run = await runAgent(t, createScriptedPolicy([{ calls: [[name, args]] }, { text: "Sorry." }]));
    expect(run).toMatchObject({ stopReason: "answer", turns: 2, toolCalls: 1, toolErrors: 1 });
    expect(results(t)).toEqual([expect.stringMatching(message)]);
    expect(t.metrics["tool_errors"]).toBe(1);
  });

  it("fails the rollout with an error that the tool marks as the environment's own", async () => {
    const lost = new Error("the database is gone");
    const broken = (isOwn: boolean) =>
      defineTool({ name: "query", schema: z.object({}), run: () => Promise.reject(lost), isFatal: (error) => isOwn && error === lost });
    const play = (tool: AgentTool) => runAgent(start([tool]), createScriptedPolicy([{ calls: [["query", "{}"]] }, { text: "Sorry." }]));
    await expect(play(broken(true))).rejects.toBe(lost);
    expect(await play(broken(false))).toMatchObject({ stopReason: "answer", toolErrors: 1 });
  });

  it("runs the calls of one turn concurrently and appends their results in call order", async () => {
    const running: string[] = [];
    let meet = () => {};
    const both = new Promise<void>((resolve) => (meet = resolve));
    const wait = defineTool({
      name: "wait",
      description: "Ends once both have begun; the first call ends last.",
      schema: z.object({ id: z.string() }),
      run: async ({ id }, { callId }) => {
        running.push(id);
        if (running.length === 2) meet();
        await both;
        if (id === "first") await new Promise((resolve) => setTimeout(resolve, 20));
        return { id, callId };
      },
    });
    const t = start([wait]);
    const calls = [
      ["wait", '{"id":"first"}'],
      ["wait", '{"id":"second"}'],
    ] as const;
    await runAgent(t, createScriptedPolicy([{ calls }, { text: "done" }]));
    expect(results(t)).toEqual(['{"id":"first","callId":"call-1-0"}', '{"id":"second","callId":"call-1-1"}']);
  });

  it.each<[string, ScriptedTurn[], number, object]>([
    ["no turn is left", Array(9).fill({ calls: [["add", '{"a":1}']] }), 3, { stopReason: "max-turns", turns: 3, toolCalls: 2 }],
    [
      "a turn is cut off",
      [{ calls: [["add", '{"a":1}']], text: "so", isTruncated: true }],
      8,
      { stopReason: "length", turns: 1, toolCalls: 0, text: "so" },
    ],
    ["no tool is called", [{ text: "hm" }], 1, { stopReason: "answer", turns: 1, toolCalls: 0, text: "hm" }],
  ])("stops when %s, and leaves the sampled turn as the last item", async (_, turns, maxTurns, expected) => {
    const t = start();
    expect(await runAgent(t, createScriptedPolicy(turns), { maxTurns })).toMatchObject(expected);
    expect(t.messages().at(-1)?.role).toBe("assistant");
  });

  it("returns a string unchanged, undefined as an empty text, and a value without JSON as an error", async () => {
    const outputs: unknown[] = ["plain", undefined, null, 1n];
    const next = defineTool({ name: "next", description: "", schema: z.object({}), run: () => outputs.shift() });
    const t = start([next]);
    await runAgent(t, createScriptedPolicy([{ calls: outputs.map(() => ["next", ""] as const) }, { text: "." }]));
    expect(results(t)).toEqual(["plain", "", "null", expect.stringMatching(/^Error: .*BigInt/)]);
  });

  it("rejects with the signal's own reason after the tools have settled; a tool's own timeout is a tool error", async () => {
    const controller = new AbortController();
    const reason = new Error("enough");
    let isOver = false;
    const slow = defineTool({
      name: "slow",
      description: "",
      schema: z.object({}),
      run: async (_, { signal }) => {
        controller.abort(reason);
        await new Promise((resolve) => setTimeout(resolve, 10));
        isOver = true;
        signal.throwIfAborted();
      },
    });
    const t = start([slow]);
    const run = runAgent(t, createScriptedPolicy([{ calls: [["slow", "{}"]] }]), { signal: controller.signal });
    await expect(run).rejects.toBe(reason);
    expect(isOver).toBe(true);

    const late = defineTool({
      name: "late",
      description: "",
      schema: z.object({}),
      run: () => Promise.reject(new DOMException("took too long", "TimeoutError")),
    });
    const other = start([late]);
    await runAgent(other, createScriptedPolicy([{ calls: [["late", "{}"]] }, { text: "." }]));
    expect(results(other)).toEqual(["Error: took too long"]);
  });

  it("runs a sub-agent in a separate history and counts its turns with the rollout", async () => {
    const t = start();
    await runAgent(t, createScriptedPolicy([{ calls: [["add", '{"a":1}']] }, { text: "2" }]));
    const reader = t.history({ messages: [{ role: "user", content: "Sum up." }] });
    await runAgent(reader, createScriptedPolicy([{ text: "short" }]));
    const finished = t.finish({ reward: 1 });
    expect(finished.metrics).toMatchObject({ turns: 3, tool_calls: 1 });
    expect(finished.toJSON().additional_histories).toHaveLength(1);
  });

  it("rejects tools without `run`, unrecorded and duplicate tools before it samples", async () => {
    const policy = createScriptedPolicy([]);
    const plain = { type: "function" as const, function: { name: "plain" } };
    const bad = [
      runAgent(trajectory({ messages: [], tools: [plain] }), policy),
      runAgent(start([]), policy, { tools: [add] }),
      runAgent(start([add, add]), policy),
      runAgent(start(), policy, { maxTurns: 0 }),
    ];
    for (const run of bad) await expect(run).rejects.toThrow(ArgumentError);
    expect(policy.requests).toEqual([]);
  });

  it("offers only the chosen tools", async () => {
    const policy = createScriptedPolicy([{ calls: [["fail", "{}"]] }, { text: "." }]);
    const t = start();
    await runAgent(t, policy, { tools: [add] });
    expect(policy.requests[0]?.tools?.map((tool) => tool.function.name)).toEqual(["add"]);
    expect(results(t)).toEqual(["Error: there is no tool `fail`; the tools are: add"]);
  });
});

describe("defineTool", () => {
  it.each([
    ["a name that model APIs refuse", () => defineTool({ name: "a b", description: "", schema: z.object({}), run: () => 1 })],
    ["a schema that is no object", () => defineTool({ name: "a", description: "", schema: z.string(), run: () => 1 })],
    ["a schema without JSON Schema", () => defineTool({ name: "a", description: "", schema: z.object({ a: z.bigint() }), run: () => 1 })],
    ["nothing to run", () => defineTool({ name: "a", description: "", schema: z.object({}), run: undefined as never })],
  ])("rejects %s", (_, make) => {
    expect(make).toThrow(ConfigError);
  });
});
