/** Conversion of calls to histories. */
import OpenAI from "openai";
import { describe, expect, it } from "vitest";
import { capture } from "../../src/library/capture/index.ts";
import { toHistories } from "../../src/base/trajectory/histories.ts";
import type { RecordedCall } from "../../src/base/trajectory/histories.ts";
import { chatCompletion, chatCompletionRequest, type RequestMessage } from "../../src/base/schema/index.ts";
import { isChoice } from "../../src/base/trajectory/messages.ts";
import { ADD_SCHEMA, learned, startHarness, tokenizer, turnsOf, type Harness } from "./support.ts";

const clientOf = ({ address }: Harness) => new OpenAI({ ...address, fetch: capture.fetch, maxRetries: 0 });
const user = (content: string) => ({ role: "user" as const, content });
const assistant = (content: string) => ({ role: "assistant" as const, content });

/** Returns a model that answers each turn with a new word. */
function counting(): () => string {
  let count = 0;
  return () => `word ${count++}`;
}

const textsOf = (items: readonly object[]): string[] =>
  items.map((item) => {
    const { message = item, token_ids: ids } = item as { message?: { content: string }; token_ids?: readonly number[]; content: string };
    return `${ids ? "*" : ""}${(message as { content: string }).content}`;
  });

describe("through the embedded service", () => {
  it("n > 1: keeps the choice that the agent continued; the other choices become additional histories", async () => {
    const harness = await startHarness(counting());
    const client = clientOf(harness);
    for (const stream of [false, true]) {
      const recorded = await capture.trajectory(async () => {
        const body = { model: harness.policy.id, messages: [user("go")], n: 3 };
        const texts = ["", "", ""];
        if (stream) {
          for await (const { choices } of await client.chat.completions.create({ ...body, stream: true })) {
            for (const { index, delta } of choices) texts[index] += delta.content ?? "";
          }
        } else for (const { index, message } of (await client.chat.completions.create(body)).choices) texts[index] = message.content ?? "";
        await client.chat.completions.create({ model: harness.policy.id, messages: [user("go"), assistant(texts[1]!), user("on")] });
        return { reward: 1 };
      });
      const wire = recorded.toJSON();
      const [first, second, third, last] = harness.sampled.slice(-4).map(({ ids }) => `*${tokenizer.decode(ids.slice(0, -1))}`);
      expect(textsOf(wire.messages_and_choices)).toEqual(["go", second, "on", last]);
      expect(wire.additional_histories.map((history) => textsOf(history.messages_and_choices))).toEqual([
        ["go", first],
        ["go", third],
      ]);
      expect(new Set(turnsOf(recorded).map(({ ids }) => ids.join()))).toEqual(
        new Set(harness.sampled.slice(-4).map(({ ids }) => ids.join())),
      );
      expect(learned(recorded)).toMatchObject({ rows: 3, mergedTurns: 1, driftedTurns: 0 });
    }
  });

  it("a sub-agent, a fork and a compacted conversation become additional histories, with each turn recorded once", async () => {
    const harness = await startHarness(counting());
    const client = clientOf(harness);
    const ask = async (...messages: RequestMessage[]) => {
      const body = { model: harness.policy.id, messages: messages as OpenAI.ChatCompletionMessageParam[] };
      return assistant((await client.chat.completions.create(body)).choices[0]?.message.content ?? "");
    };
    const recorded = await capture.trajectory(async () => {
      const one = await ask(user("main"));
      await ask(user("sub-agent"));
      const two = await ask(user("main"), one, user("more"));
      // The same prefix again: it belongs to the first continuation.
      await ask(user("main"), one, user("fork"));
      await ask(user(`summary of ${two.content}`), user("last"));
      return { reward: 1 };
    });
    const wire = recorded.toJSON();
    expect(textsOf(wire.messages_and_choices)).toEqual(["main", "*word 0", "more", "*word 2"]);
    expect(wire.additional_histories.map((history) => textsOf(history.messages_and_choices))).toEqual([
      ["sub-agent", "*word 1"],
      ["main", "word 0", "fork", "*word 3"],
      ["summary of word 2", "last", "*word 4"],
    ]);
    expect(turnsOf(recorded)).toHaveLength(5);
    expect(learned(recorded)).toMatchObject({ rows: 4, mergedTurns: 1, driftedTurns: 0 });
    expect(recorded.logs).toEqual([]);
  });

  it("keeps the turns of parallel sub-agents in one rollout apart", async () => {
    const harness = await startHarness(counting());
    const client = clientOf(harness);
    const talk = async (name: string) => {
      const messages: OpenAI.ChatCompletionMessageParam[] = [];
      for (let turn = 0; turn < 3; turn++) {
        messages.push(user(`${name} ${turn}`));
        const completion = await client.chat.completions.create({ model: harness.policy.id, messages });
        messages.push(completion.choices[0]!.message);
      }
    };
    const recorded = await capture.trajectory(async () => {
      await Promise.all(["a", "b", "c"].map(talk));
      return { reward: 1 };
    });
    const wire = recorded.toJSON();
    const histories = [wire, ...wire.additional_histories].map((history) => history.messages_and_choices);
    expect(histories.map((items) => items.filter((item) => !isChoice(item)).map((item) => (item as RequestMessage).content))).toEqual([
      ["a 0", "a 1", "a 2"],
      ["b 0", "b 1", "b 2"],
      ["c 0", "c 1", "c 2"],
    ]);
    expect(learned(recorded)).toMatchObject({ rows: 3, mergedTurns: 6, driftedTurns: 0 });
  });

  it("makes an additional history if the agent rewrote an earlier turn, by comparing token ids", async () => {
    const harness = await startHarness(counting());
    const client = clientOf(harness);
    const recorded = await capture.trajectory(async () => {
      await client.chat.completions.create({ model: harness.policy.id, messages: [user("go")] });
      await client.chat.completions.create({
        model: harness.policy.id,
        messages: [user("go"), assistant("what it never said"), user("on")],
      });
      return { reward: 1 };
    });
    const wire = recorded.toJSON();
    expect(textsOf(wire.messages_and_choices)).toEqual(["go", "*word 0"]);
    expect(wire.additional_histories.map((history) => textsOf(history.messages_and_choices))).toEqual([
      ["go", "what it never said", "on", "*word 1"],
    ]);
  });

  it("makes an additional history if the tools change between turns", async () => {
    const harness = await startHarness(counting());
    const client = clientOf(harness);
    const tools = [{ type: "function" as const, function: { name: "add", parameters: ADD_SCHEMA } }];
    const recorded = await capture.trajectory(async () => {
      await client.chat.completions.create({ model: harness.policy.id, messages: [user("go")], tools });
      await client.chat.completions.create({ model: harness.policy.id, messages: [user("go"), assistant("word 0"), user("on")] });
      return { reward: 1 };
    });
    expect(recorded.tools).toHaveLength(1);
    expect(recorded.toJSON().additional_histories.map(({ tools: own }) => own)).toEqual([null]);
    expect(recorded.logs).toEqual([expect.stringContaining("by its messages but not by its token ids")]);
  });
});

/** Returns a recorded call; without token ids if `prompt` is null. */
function callOf(
  order: number,
  messages: readonly object[],
  answer: object,
  prompt: readonly number[] | null = null,
  more: object = {},
): RecordedCall {
  return {
    order,
    request: chatCompletionRequest.parse({ model: "m", messages, ...more }),
    completion: chatCompletion.parse({
      id: "c",
      model: "m",
      usage: {},
      prompt_token_ids: prompt,
      choices: [{ message: { role: "assistant", ...answer }, token_ids: prompt === null ? null : [9] }],
    }),
  };
}

describe("without token ids", () => {
  const toolCall = (args: string) => ({ id: "x", type: "function", function: { name: "f", arguments: args } });
  const done = { role: "tool", tool_call_id: "x", content: "ok" };
  it.each<[string, object, object]>([
    ["absent text as null", { content: null, tool_calls: [toolCall("{}")] }, { content: "", tool_calls: [toolCall("{}")] }],
    ["text as parts", { content: "a" }, { content: [{ type: "text", text: "a" }] }],
    ["arguments with other spaces", { tool_calls: [toolCall('{"a": 1}')] }, { content: null, tool_calls: [toolCall('{"a":1}')] }],
    ["reasoning left out", { content: "a", reasoning: "hm" }, { content: "a" }],
    ["no calls as an empty list", { content: "a", tool_calls: [] }, { content: "a" }],
  ])("joins turns by equal messages: %s", (_, answer, again) => {
    const calls = [callOf(0, [user("q")], answer), callOf(1, [user("q"), { role: "assistant", ...again }, done], { content: "end" })];
    const { histories, drifted } = toHistories(calls, null);
    expect(histories).toHaveLength(1);
    expect(histories[0]!.items).toHaveLength(4);
    expect(drifted).toEqual([]);
  });
  it.each<[string, object, object]>([
    ["other text", { content: "a" }, { content: "b" }],
    ["other arguments", { tool_calls: [toolCall('{"a":1}')] }, { tool_calls: [toolCall('{"a":2}')] }],
    ["another call", { tool_calls: [toolCall("{}")] }, { tool_calls: [{ ...toolCall("{}"), id: "y" }] }],
  ])("makes an additional history for different messages: %s", (_, answer, again) => {
    const calls = [callOf(0, [user("q")], answer), callOf(1, [user("q"), { role: "assistant", ...again }, done], { content: "end" })];
    expect(toHistories(calls, null).histories).toHaveLength(2);
  });
  it("makes an additional history for different tools", () => {
    const tools = [{ type: "function", function: { name: "f" } }];
    const calls = [
      callOf(0, [user("q")], { content: "a" }, null, { tools }),
      callOf(1, [user("q"), assistant("a"), user("r")], { content: "b" }),
    ];
    expect(toHistories(calls, null).histories).toHaveLength(2);
  });
});

describe("with token ids", () => {
  it("joins turns by their token ids, even if the messages between them changed", () => {
    const split = [user("q"), assistant("a"), { role: "tool", content: "one" }, { role: "tool", content: "two" }];
    const calls = [
      callOf(0, [{ role: "system", content: "s" }, user("q")], { content: "a" }, [1, 2]),
      callOf(1, split, { content: "b" }, [1, 2, 9, 4]),
      callOf(2, [user("q"), assistant("a"), user("x"), assistant("b"), user("y")], { content: "c" }, [1, 2, 9, 4, 7, 7]),
    ];
    const { histories, drifted } = toHistories(calls, 5);
    expect(histories.map(({ items }) => textsOf(items))).toEqual([
      ["s", "q", "*a", "one", "two", "*b"],
      ["q", "a", "x", "b", "y", "*c"],
    ]);
    expect(histories[0]!.items.filter(isChoice).map((choice) => choice.policy_version)).toEqual([5, 5]);
    expect(drifted).toEqual([]);
  });
  it("reports a turn as drifted if only its messages continue the previous turn", () => {
    const calls = [
      callOf(0, [user("q")], { content: "a" }, [1, 2]),
      callOf(1, [user("q"), assistant("a"), user("r")], { content: "b" }, [1, 2, 8, 4]),
    ];
    const { histories, drifted } = toHistories(calls, null);
    expect(histories).toHaveLength(2);
    expect(drifted.map(({ order }) => order)).toEqual([1]);
  });
  it("joins turns of prompts without messages, with the text between them if it is known", () => {
    const raw = (order: number, text: string, said: string, prompt: readonly number[]) => ({
      ...callOf(order, [user(text)], { content: said }, prompt),
      isRaw: true,
    });
    const calls = [
      raw(0, "Q: a\nA:", " one", [1, 2]),
      raw(1, "Q: a\nA: one\nQ: b\nA:", " two", [1, 2, 9, 3]),
      raw(2, "", "three", [1, 2, 9, 3, 9, 4]),
      raw(3, "", "four", [1, 2, 9, 3, 9, 4, 9]),
      raw(4, "Q: c\nA:", " five", [1, 2, 3]),
    ];
    const { histories, drifted } = toHistories(calls, null);
    expect(histories.map(({ items }) => textsOf(items))).toEqual([
      ["Q: a\nA:", "* one", "\nQ: b\nA:", "* two", "", "*three", "*four"],
      ["Q: c\nA:", "* five"],
    ]);
    expect(drifted).toEqual([]);
  });
  it("returns no histories for no calls", () => {
    expect(toHistories([], null)).toEqual({ histories: [], drifted: [] });
  });
});
