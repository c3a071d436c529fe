import { describe, expect, it } from "vitest";
import { RecentPrompts } from "../../../src/service/chat/prompt/recent-prompts.ts";
import type { PromptRequest } from "../../../src/service/chat/request/prompt-request.ts";
import type { PromptEncoder } from "../../../src/service/chat/prompt/render.ts";
import { renderText } from "../../../src/service/chat/prompt/render-text.ts";
import { tokenizer } from "./support.ts";

const asked = (content: string): PromptRequest => ({
  messages: [{ role: "user", content }],
  tools: null,
  addGenerationPrompt: true,
  continuesFinalMessage: false,
  addsSpecialTokens: false,
  variables: {},
  templateKwargs: [],
  template: null,
});

describe("RecentPrompts", () => {
  it("renders a conversation once for concurrent requests, and again after it expires", async () => {
    let nowMs = 0;
    let renders = 0;
    const encoderOf = (directory: string): PromptEncoder => ({
      tokenizer,
      directory,
      tail: null,
      render: (request) => {
        renders++;
        return Promise.resolve(renderText(tokenizer, request));
      },
      encode: (text) => Promise.resolve(tokenizer.encode(text)),
    });
    const [a, b] = [encoderOf("a"), encoderOf("b")];
    const recent = new RecentPrompts(() => nowMs);
    const first = await recent.render(a, asked("hi"), null);
    expect(first).toMatchObject({ text: tokenizer.renderChat(asked("hi").messages), ids: tokenizer.encode(first.text) });
    await recent.render(a, asked("hi"), null);
    expect(renders).toBe(1);
    await recent.render(b, asked("hi"), null);
    await recent.render({ ...b, tail: 3 }, asked("hi"), null);
    await recent.render(a, { ...asked("hi"), tools: [{ type: "function", function: { name: "f" } }] }, null);
    expect(renders).toBe(4);
    const different: Partial<PromptRequest>[] = [
      { addGenerationPrompt: false },
      { continuesFinalMessage: true, addGenerationPrompt: false },
      { addsSpecialTokens: true },
      { variables: { a: 1 } },
      { template: "hi" },
    ];
    await recent.render(a, asked("hi"), "another namespace");
    expect(renders).toBe(5);
    for (const more of different) await recent.render(a, { ...asked("hi"), ...more }, null);
    expect(renders).toBe(10);
    nowMs = 1000;
    await recent.render(a, asked("hi"), null);
    expect(renders).toBe(11);
    for (let index = 0; index < 300; index++) await recent.render(a, asked(`other ${index}`), null);
    renders = 0;
    await recent.render(a, asked("hi"), null);
    await recent.render(a, asked("other 299"), null);
    expect(renders).toBe(1);
  });
});
