/** Unmodified clients of the Responses and Messages APIs, streaming and not: two questions, each with a tool call. */
import { describe, expect, it } from "vitest";
import { capture, captureAll } from "../../src/library/capture/index.ts";
import { PLAYS } from "../clients/dialect-plays.ts";
import { ANSWERS, conversation, expectOneRow, QUESTIONS, startHarness } from "./support.ts";

/** Anthropic's tool runner first sends only new messages, which the service rejects, for each question. */
const rejected = (name: string) =>
  name.startsWith("the tool runner") ? QUESTIONS.map(() => expect.stringMatching(/is no turn: the service answered 400$/u)) : [];

describe.each(Object.entries(PLAYS))("%s", (name, play) => {
  it.each([
    ["not streaming", false],
    ["streaming", true],
  ])("%s: every sampled token is in one row and no turn has drifted", async (_, isStreaming) => {
    const harness = await startHarness(conversation);
    let answers: string[] = [];
    const recorded = await capture.trajectory(
      async () => {
        answers = await play({ ...harness, fetch: capture.fetch }, isStreaming);
        return { reward: 1 };
      },
      { policy: harness.policy },
    );
    expect(answers).toEqual(ANSWERS);
    expect(harness.sampled).toHaveLength(4);
    expectOneRow(recorded, harness, rejected(name));
    expect(recorded.tools.map((tool) => tool.function.name)).toEqual(["add"]);
    const messages = recorded.messages().filter(({ role }) => role !== "system");
    expect(messages.map(({ role }) => role)).toEqual(["user", "assistant", "tool", "assistant", "user", "assistant", "tool", "assistant"]);
    expect(messages.map(({ content }) => content)).toEqual([
      "1 + 2?",
      "Let me see. ",
      "3",
      "it is 3",
      "and twice?",
      null,
      "6",
      "twice is 6",
    ]);
    expect(recorded.choices.map((choice) => choice.finish_reason)).toEqual(["tool_calls", "stop", "tool_calls", "stop"]);
    expect(JSON.stringify(recorded)).not.toContain(harness.address.apiKey);
  });

  it("is recorded through undici's channels, with its turns joined by their messages", async () => {
    using watching = captureAll();
    void watching;
    const harness = await startHarness(conversation);
    const recorded = await capture.trajectory(async () => ({ reward: (await play(harness, true)).length }), { policy: harness.policy });
    expect([recorded.choices.length, recorded.additionalHistories, recorded.logs]).toEqual([4, [], rejected(name)]);
    expect(recorded.lastText).toBe("twice is 6");
  });
});
