import { describe, expect, test } from "vitest";
import { validate } from "whetstone/environment";
import { SPLITS } from "../../recipes/shared/splits.ts";
import environment, { madeCalls, toolsOf } from "../../recipes/tool-calls/environment.ts";
import { KINDS } from "../../recipes/tool-calls/kinds.ts";
import { callScenario, type CallScenario, callScore, correct, goldMessages, reportScore, resultOf } from "../../recipes/tool-calls/task.ts";

const find = { tool: "find_contact", args: { name: "Anna" } };
const send = { tool: "send_message", args: { number: "555-1234", text: "I am late" } };
const message: CallScenario = {
  id: "held-out-0",
  topic: "message Anna I am late",
  kind: "message",
  request: "Tell Anna: I am late",
  calls: [
    { ...find, result: "555-1234" },
    { ...send, result: "delivered at 5:30" },
  ],
  answer: "The message to Anna was delivered at 5:30.",
  facts: ["5:30"],
};

describe("tool-calls", () => {
  test("scores the calls in their order, and extra calls lower the score", () => {
    expect(callScore([find, send], message)).toBe(1);
    expect(callScore([find], message)).toBe(0.5);
    expect(callScore([send, find], message)).toBe(0.5);
    expect(callScore([find, find, send], message)).toBeCloseTo(2 / 3);
    expect(callScore([], message)).toBe(0);
    expect(
      callScore(
        Array.from({ length: 50 }, () => find),
        message,
      ),
    ).toBeCloseTo(1 / 50);
  });

  test("compares every argument and no others", () => {
    const calls = (args: Record<string, unknown>) => callScore([find, { tool: "send_message", args }], message);
    expect(calls({ text: "i am late ", number: "555-1234" })).toBe(1);
    expect(calls({ text: "I am late", number: "555-1235" })).toBe(0.5);
    expect(calls({ text: "I am late" })).toBe(0.5);
    expect(calls({ text: "I am late", number: "555-1234", urgent: true })).toBe(0.5);
    expect(calls({ text: "I am late", number: 5551234 })).toBe(0.5);
  });

  test("a report contains every fact as a word and is one short sentence", () => {
    expect(reportScore("It was delivered at 5:30.", message)).toBe(1);
    expect(reportScore("It was delivered at 15:30.", message)).toBe(0);
    expect(reportScore(`${"word ".repeat(30)} 5:30`, message)).toBe(0);
    expect(reportScore("", message)).toBe(0);
    expect(correct([find, send], "Delivered at 5:30.", message)).toBe(1);
    expect(correct([find, send], "Done.", message)).toBe(0);
  });

  test("a tool returns its result only for the expected arguments", async () => {
    const context = { signal: new AbortController().signal, callId: "1" };
    const tools = new Map(toolsOf(message).map((tool) => [tool.function.name, tool]));
    expect(await tools.get("find_contact")!.call('{"name":"Anna"}', context)).toEqual({ text: "555-1234", isError: false });
    expect(await tools.get("find_contact")!.call('{"name":"Ben"}', context)).toEqual({ text: "nothing found", isError: false });
    expect((await tools.get("find_contact")!.call("{}", context)).isError).toBe(true);
    expect(resultOf("weather", { city: "Oslo", day: "Monday" }, message)).toBe("nothing found");
  });

  test("reads the calls of a conversation; arguments that are not an object count as empty", () => {
    const call = (args: string) => ({ type: "function" as const, function: { name: "order", arguments: args } });
    expect(madeCalls([{ tool_calls: [call('{"code":"P1"}'), call("[1]"), call("{")] }, {}])).toEqual([
      { tool: "order", args: { code: "P1" } },
      { tool: "order", args: {} },
      { tool: "order", args: {} },
    ]);
  });

  test("scenarios are pure functions of seed and index, and no topic is in two splits", () => {
    const seen = new Map<string, string>();
    for (const split of SPLITS) {
      for (let index = 0; index < 30 * KINDS.length; index++) {
        const scenario = callScenario(split, 3, index);
        expect(callScenario(split, 3, index)).toEqual(scenario);
        expect(seen.get(scenario.topic) ?? split).toBe(split);
        seen.set(scenario.topic, split);
        expect(correct(madeCalls(goldMessages(scenario).filter((each) => each.role === "assistant")), scenario.answer, scenario)).toBe(1);
      }
    }
  });

  test("the gold conversation earns the full reward", async () => {
    expect(await validate(environment)).toMatchObject({ isValid: true, expected: 1, findings: [] });
  });
});
