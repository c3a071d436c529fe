import { describe, expect, it } from "vitest";
import { RecentPrompts } from "../../../src/service/chat/recent-prompts.ts";
import type { PromptRequest } from "../../../src/service/chat/prompt-request.ts";
import { tokenizer } from "./support.ts";

const asked = (content: string): PromptRequest => ({
  messages: [{ role: "user", content }],
  tools: null,
  addGenerationPrompt: true,
  continuesFinalMessage: false,
  addsSpecialTokens: false,
  variables: {},
  template: null,
});

describe("RecentPrompts", () => {
  it("renders a conversation once for requests that come together, and again when it is old", () => {
    let nowMs = 0;
    let renders = 0;
    const counting = Object.create(tokenizer, {
      renderChat: { value: (...args: Parameters<typeof tokenizer.renderChat>) => (renders++, tokenizer.renderChat(...args)) },
      encode: { value: tokenizer.encode.bind(tokenizer) },
    });
    const recent = new RecentPrompts(() => nowMs);
    const first = recent.render(counting, "a", asked("hi"));
    expect(first).toMatchObject({ text: tokenizer.renderChat(asked("hi").messages), ids: tokenizer.encode(first.text) });
    recent.render(counting, "a", asked("hi"));
    expect(renders).toBe(1);
    recent.render(counting, "b", asked("hi"));
    recent.render(counting, "a", { ...asked("hi"), tools: [{ type: "function", function: { name: "f" } }] });
    expect(renders).toBe(3);
    const different: Partial<PromptRequest>[] = [
      { addGenerationPrompt: false },
      { continuesFinalMessage: true, addGenerationPrompt: false },
      { addsSpecialTokens: true },
      { variables: { a: 1 } },
      { template: "hi" },
    ];
    for (const more of different) recent.render(counting, "a", { ...asked("hi"), ...more });
    expect(renders).toBe(8);
    nowMs = 1000;
    recent.render(counting, "a", asked("hi"));
    expect(renders).toBe(9);
    for (let index = 0; index < 300; index++) recent.render(counting, "a", asked(`other ${index}`));
    renders = 0;
    recent.render(counting, "a", asked("hi"));
    recent.render(counting, "a", asked("other 299"));
    expect(renders).toBe(1);
  });
});
