import { describe, expect, it } from "vitest";
import { preferenceLine, readPreferencePair } from "../../src/base/trajectory/preference-pair.ts";

const user = (content: string) => ({ role: "user", content });
const assistant = (content: string, more: object = {}) => ({ role: "assistant", content, ...more });
const tools = [{ type: "function", function: { name: "search", parameters: { type: "object" } } }];

const read = (line: unknown) => readPreferencePair(line, "pairs.jsonl line 7");
const OPENAI = { input: { messages: [user("q")] }, preferred_output: [assistant("good")], non_preferred_output: [assistant("bad")] };
const TRL = { prompt: [user("q")], chosen: [assistant("good")], rejected: [assistant("bad")] };
const PAIR = { prompt: [user("q")], chosen: [assistant("good")], rejected: [assistant("bad")] };

describe("readPreferencePair", () => {
  it("reads OpenAI's format with its tools and settings", () => {
    const line = { ...OPENAI, input: { ...OPENAI.input, tools, parallel_tool_calls: false }, chat_template_kwargs: { thinking: false } };
    expect(read(line)).toMatchObject({ ...PAIR, tools, parallelToolCalls: false, chatTemplateKwargs: { thinking: false } });
    expect(Object.keys(read(OPENAI))).not.toContain("tools");
  });

  it("reads TRL's conversational format, with tools as a list or as JSON text", () => {
    expect(read(TRL)).toMatchObject(PAIR);
    expect(read({ ...TRL, tools }).tools).toEqual(tools);
    expect(read({ ...TRL, tools: JSON.stringify(tools), chat_template_kwargs: { a: 1 } })).toMatchObject({
      tools,
      chatTemplateKwargs: { a: 1 },
    });
  });

  it.each([
    ["without a prompt", {}],
    ["beside a prompt as text", { prompt: "q" }],
  ])("takes the common beginning of whole conversations as prompt, %s", (_, more) => {
    const start = [user("q"), assistant("first"), user("again")];
    const line = { chosen: [...start, assistant("good")], rejected: [...start, assistant("bad")], score_chosen: 9, ...more };
    expect(read(line)).toMatchObject({ prompt: start, chosen: [assistant("good")], rejected: [assistant("bad")] });
  });

  it("converts a pair to a line in OpenAI's format, from which the same pair is read", () => {
    const pair = read({ ...TRL, tools, chat_template_kwargs: { a: 1 } });
    const line = preferenceLine(pair);
    expect(line).toEqual({
      input: { messages: [user("q")], tools },
      preferred_output: [assistant("good")],
      non_preferred_output: [assistant("bad")],
      chat_template_kwargs: { a: 1 },
    });
    const { names: _, ...again } = read(line);
    const { names: __, ...first } = pair;
    expect(again).toEqual(first);
  });

  it.each([
    ["a line that is not an object", [], /expected an object with `input`, `preferred_output`/],
    ["a chat line", { messages: [user("q")] }, /expected an object with `input`/],
    ["a missing output", { input: OPENAI.input, preferred_output: [assistant("good")] }, /`non_preferred_output`/],
    ["a message without a role", { ...OPENAI, preferred_output: [{ content: "x" }] }, /`preferred_output\.0\.role`/],
    ["an empty list of messages", { ...OPENAI, non_preferred_output: [] }, /`non_preferred_output`/],
    ["an input without messages", { ...OPENAI, input: {} }, /`input\.messages`/],
    ["an empty prompt", { ...TRL, prompt: [] }, /`prompt`/],
    ["tools as text that is not JSON", { ...TRL, tools: "[" }, /`tools`/],
    ["text in place of messages", { prompt: "q", chosen: "good", rejected: "bad" }, /expected `chosen` to be a list of messages, got text/],
    ["one text in place of messages", { ...TRL, rejected: "bad" }, /expected `rejected` to be a list of messages, got text/],
    [
      "a continuation that begins with a user message",
      { ...OPENAI, preferred_output: [user("x"), assistant("good")] },
      /`preferred_output`: expected a continuation .* got a message with the role "user"/,
    ],
    [
      "conversations of different users",
      { chosen: [user("a"), assistant("x")], rejected: [user("b"), assistant("y")] },
      /expected `chosen` and `rejected` to begin with the same messages/,
    ],
    [
      "conversations of which one only begins the other",
      { chosen: [user("a"), assistant("x")], rejected: [user("a"), assistant("x"), user("b"), assistant("y")] },
      /`chosen`: expected a continuation .* got no message/,
    ],
    ["equal continuations", { ...TRL, rejected: TRL.chosen }, /expected `chosen` and `rejected` to differ, got equal messages/],
    ["a continuation of context alone", { ...TRL, chosen: [assistant("good", { weight: 0 })] }, /`chosen`: expected at least one/],
    [
      "a weight of a message between 0 and 1",
      { ...OPENAI, non_preferred_output: [assistant("bad", { weight: 0.5 })] },
      /`non_preferred_output\.0`: expected the `weight`.*got 0\.5/,
    ],
    ["a weight of a pair", { ...OPENAI, weight: 2 }, /expected no `weight`/],
  ])("rejects %s with line and field", (_, line, message) => {
    expect(() => read(line)).toThrow(expect.objectContaining({ code: "E_DATA", message: expect.stringMatching(message) as string }));
    expect(() => read(line)).toThrow("pairs.jsonl line 7: ");
  });
});
