import { mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { readChatJsonl, writeChatJsonl, type ChatExample } from "../../src/library/dataset/index.ts";
import { Trajectory } from "../../src/base/trajectory/index.ts";
import { sampled } from "../trajectory/samples.ts";

let directory = "";
beforeAll(async () => (directory = await mkdtemp(join(tmpdir(), "whetstone-chat-test-"))));
afterAll(() => rm(directory, { recursive: true }));

const user = { role: "user", content: "hi" };
const assistant = { role: "assistant", content: "ho" };
const example = { messages: [user, assistant] };
const tools = [{ type: "function" as const, function: { name: "f" } }];

async function lines(path: string): Promise<unknown[]> {
  return (await readFile(path, "utf8"))
    .trimEnd()
    .split("\n")
    .map((line) => JSON.parse(line) as unknown);
}

async function readAll(text: string): Promise<ChatExample[]> {
  const path = join(directory, "read.jsonl");
  await writeFile(path, text);
  const all: ChatExample[] = [];
  for await (const each of readChatJsonl(path)) all.push(each);
  return all;
}

describe("writeChatJsonl", () => {
  it("writes conversations, with sampled turns as assistant messages", async () => {
    const path = join(directory, "chat.jsonl");
    await writeChatJsonl(path, [sampled(1, "yes"), { ...example, tools, parallelToolCalls: false, chatTemplateKwargs: { a: 1 } }]);
    expect(await lines(path)).toEqual([
      {
        messages: [
          { role: "user", content: "q" },
          { role: "assistant", content: "yes" },
        ],
      },
      { ...example, tools, parallel_tool_calls: false, chat_template_kwargs: { a: 1 } },
    ]);
  });

  it("writes one line per history, with weight 0 for assistant messages that were context", async () => {
    const path = join(directory, "histories.jsonl");
    const { messages_and_choices: items, ...rest } = sampled(1, "yes").toJSON();
    const rich = Trajectory.fromJSON({
      ...rest,
      messages_and_choices: [user, assistant, ...items],
      additional_histories: [{ messages_and_choices: [user, assistant], tools }, { messages_and_choices: [user] }],
    });
    const { count } = await writeChatJsonl(path, [rich]);
    expect(count).toBe(2);
    expect(await lines(path)).toEqual([
      { messages: [user, { ...assistant, weight: 0 }, { role: "user", content: "q" }, { role: "assistant", content: "yes" }] },
      { messages: [user, assistant], tools },
    ]);
  });

  it.each([
    [{ messages: [] }, /Example 1: .*at least one message/],
    [{ messages: [user] }, /Example 1: .*assistant/],
    [{ messages: [{ content: "hi" }] }, /Example 1: expected a message .* at `messages.0/],
    [{ ...example, tools: [{ type: "function", function: {} }] }, /Example 1: .*`tools.0/],
    [{ messages: [user, { ...assistant, weight: 0 }] }, /Example 1: .*weight: 0/],
    [{ messages: [user, { ...assistant, weight: 0.5 }] }, /Example 1: `messages.1.weight`: expected 0 .*got 0.5/],
    [{ ...example, parallelToolCalls: "yes" }, /Example 1: .*`parallel_tool_calls`/],
    [{ ...example, chatTemplateKwargs: ["a"] }, /Example 1: expected an object of template variables by name at `chat_template_kwargs`/],
    [{ ...example, weight: 0 }, /Example 1: `weight`: expected a number from 0.000001 to 1000000, got 0/],
    [{ ...example, weight: 1e7 }, /Example 1: `weight`: expected a number from 0.000001 to 1000000, got 10000000/],
  ])("rejects %j", async (bad, message) => {
    await expect(writeChatJsonl(join(directory, "never.jsonl"), [bad as never])).rejects.toMatchObject({
      code: "E_DATA",
      message: expect.stringMatching(message),
    });
    expect(await readdir(directory)).not.toContain("never.jsonl");
  });
});

describe("readChatJsonl", () => {
  it("reads weights, tool calls and tools as written", async () => {
    const full: ChatExample = {
      messages: [
        user,
        { ...assistant, weight: 0 },
        {
          role: "assistant",
          content: null,
          tool_calls: [{ id: "1", type: "function", function: { name: "f", arguments: "{}" } }],
          weight: 1,
        },
        { role: "tool", content: "3", tool_call_id: "1" },
        assistant,
      ],
      tools,
      parallelToolCalls: true,
      chatTemplateKwargs: { preserve_thinking: true, level: [1, null] },
      weight: 2.5,
    };
    const path = join(directory, "both.jsonl");
    await writeChatJsonl(path, [full, example]);
    expect(await readAll(await readFile(path, "utf8"))).toEqual([full, example]);
  });

  it.each([
    [{ messages_and_choices: [] }, /:2: .*got a trajectory; use `readTrajectories`/],
    [{ messages: [user] }, /:2: .*assistant/],
    [{ messages: "hi" }, /:2: expected `messages`/],
    [{ ...example, tools: {} }, /:2: expected `tools`/],
    [{ ...example, parallel_tool_calls: 1 }, /:2: expected `parallel_tool_calls`/],
    [[], /:2: expected a chat example object/],
  ])("names the line of the invalid value %j", async (value, message) => {
    await expect(readAll(`${JSON.stringify(example)}\n${JSON.stringify(value)}\n`)).rejects.toMatchObject({
      code: "E_DATA",
      message: expect.stringMatching(message),
    });
  });

  it("reads null tools and parallel_tool_calls as absent, and ignores other keys", async () => {
    expect(await readAll(JSON.stringify({ ...example, tools: null, parallel_tool_calls: null, id: 7 }))).toEqual([example]);
  });
});
