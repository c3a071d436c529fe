/** Cases 66 to 71: conversion of messages to the prompt. */
import { expect } from "vitest";
import type { ConformanceCase } from "../case.ts";
import { contextLength, promptText } from "../facts.ts";
import { TEMPLATELESS } from "../servers.ts";

const CONTINUED = {
  messages: [
    { role: "user", content: "hello" },
    { role: "assistant", content: "well met" },
  ],
  continue_final_message: true,
  add_generation_prompt: false,
};
const LONG = { messages: [{ role: "user", content: "one two three four five six seven eight" }], return_token_ids: true, max_tokens: 1 };

export const prompt: readonly ConformanceCase[] = [
  {
    number: 66,
    title: "echo puts the continued text before the answer; without it the answer has only the continuation",
    fields: ["echo", "continue_final_message", "add_generation_prompt"],
    run: async (target) => {
      const body = { ...CONTINUED, seed: 1, max_tokens: 6 };
      const without = await target.text({ ...body, echo: false });
      expect(await target.text({ ...body, echo: true })).toBe(`well met${without}`);
    },
  },
  {
    number: 67,
    title: "rejects a request that both continues the last turn and opens a new one",
    fields: ["continue_final_message", "add_generation_prompt"],
    run: async (target) => {
      const { messages } = CONTINUED;
      for (const [body, type] of [
        [{ continue_final_message: true, add_generation_prompt: true }, "Bad Request"],
        [{ continue_final_message: true }, "BadRequestError"],
      ] as const)
        expect(await target.refused({ messages, ...body })).toMatchObject({ status: 400, type, param: null });
    },
  },
  {
    number: 68,
    title: "a prompt ends with the text to continue, with the assistant header, or with neither",
    fields: ["continue_final_message", "add_generation_prompt"],
    run: async (target) => {
      expect((await promptText(target, CONTINUED)).endsWith("well met")).toBe(true);
      const [opened, closed] = [await promptText(target, {}), await promptText(target, { add_generation_prompt: false })];
      expect(opened.startsWith(closed)).toBe(true);
      expect(opened.length).toBeGreaterThan(closed.length);
    },
  },
  {
    number: 70,
    title: "rejects a template in the request if such templates are not trusted",
    fields: ["chat_template", "chat_template_kwargs"],
    run: async (target) => {
      for (const body of [{ chat_template: "{{ messages[0].content }}" }, { chat_template_kwargs: { chat_template: "x" } }])
        expect(await target.refused(body)).toMatchObject({ status: 400, type: "BadRequestError" });
    },
  },
  {
    number: 70,
    title: "uses a trusted template; rejects a request without one if the model has none",
    fields: ["chat_template"],
    needs: { server: "open", because: "trust in templates of requests, and a model without a template" },
    run: async (target) => {
      expect(await promptText(target, { chat_template: "-={{ messages[0].content }}=-" })).toBe("={{ }}=-".replace("{{ }}", "hello"));
      expect(await target.refused({ model: TEMPLATELESS })).toMatchObject({
        status: 400,
        type: "BadRequestError",
        message: expect.stringContaining("chat template"),
      });
      expect(await promptText(target, { model: TEMPLATELESS, chat_template: "-={{ messages[0].content }}=-" })).toBe("=hello=-");
    },
  },
  {
    number: 71,
    title: "ignores documents that the template does not use; rejects a number in a document",
    fields: ["documents"],
    run: async (target) => {
      const documents = [{ title: "a", text: "b" }];
      expect(await promptText(target, { documents })).toBe(await promptText(target, {}));
      expect(await target.refused({ documents: [{ title: 1 }] })).toMatchObject({ status: 400 });
    },
  },
  {
    number: 71,
    title: "documents reach a template that uses them, and take precedence over its keyword arguments",
    fields: ["documents", "chat_template_kwargs", "reasoning_effort"],
    needs: { server: "open", because: "trust in templates of requests" },
    run: async (target) => {
      const body = {
        chat_template: "-{{ documents[0].title }}|{{ mood }}|{{ reasoning_effort }}",
        chat_template_kwargs: { mood: "good", documents: [{ title: "no" }], reasoning_effort: "high" },
      };
      expect(await promptText(target, body)).toBe("no|good|high");
      expect(await promptText(target, { ...body, documents: [{ title: "mine" }], reasoning_effort: "low" })).toBe("mine|good|low");
    },
  },
  {
    number: 109,
    title: "truncation keeps the end of the prompt; -1 keeps what fits; 0, and more than fits, are rejected",
    fields: ["truncate_prompt_tokens"],
    run: async (target) => {
      const { prompt_token_ids: whole } = await target.complete(LONG);
      const cut = await target.complete({ ...LONG, truncate_prompt_tokens: 4 });
      expect(cut.prompt_token_ids).toEqual(whole.slice(-4));
      expect(cut.usage.prompt_tokens).toBe(4);
      const length = await contextLength(target);
      const flood = { messages: [{ role: "user", content: "a b ".repeat(length) }], max_tokens: 5 };
      expect((await target.complete({ ...flood, truncate_prompt_tokens: -1 })).usage.prompt_tokens).toBe(length - 5);
      for (const truncate_prompt_tokens of [0, length])
        expect(await target.refused({ ...flood, truncate_prompt_tokens })).toMatchObject({ status: 400, param: "truncate_prompt_tokens" });
    },
  },
  {
    number: 110,
    title: "add_special_tokens adds the encoder's special tokens to the prompt, if it has any",
    fields: ["add_special_tokens"],
    run: async (target) => {
      const { prompt_token_ids: plain } = await target.complete(LONG);
      const { prompt_token_ids: more } = await target.complete({ ...LONG, add_special_tokens: true });
      expect(more.join(" ")).toContain(plain.join(" "));
    },
  },
  {
    number: 111,
    title: "keyword arguments that the template does not use have no effect",
    fields: ["chat_template_kwargs"],
    run: async (target) => {
      const kwargs = { mood: "good", messages: [], add_generation_prompt: false };
      expect(await promptText(target, { chat_template_kwargs: kwargs })).toBe(await promptText(target, {}));
    },
  },
  {
    number: 112,
    title: "a cache salt does not change the answer, and must not be empty",
    fields: ["cache_salt"],
    run: async (target) => {
      const body = { seed: 3, max_tokens: 8 };
      expect(await target.text({ ...body, cache_salt: "mine" })).toBe(await target.text(body));
      expect(await target.refused({ cache_salt: "" })).toMatchObject({ status: 400, type: "Bad Request", param: null });
    },
  },
  {
    number: 113,
    title: "checks the types of passed-through fields, which do not change the answer",
    fields: ["mm_processor_kwargs", "kv_transfer_params", "engine_xargs", "user"],
    run: async (target) => {
      const body = { seed: 3, max_tokens: 8 };
      const passed = { mm_processor_kwargs: { a: 1 }, kv_transfer_params: {}, engine_xargs: { a: "b", c: [1, "d"] }, user: "somebody" };
      expect(await target.text({ ...body, ...passed })).toBe(await target.text(body));
      for (const wrong of [{ mm_processor_kwargs: 1 }, { kv_transfer_params: "x" }, { engine_xargs: { a: { b: 1 } } }, { user: 5 }])
        expect(await target.refused(wrong), JSON.stringify(wrong)).toMatchObject({ status: 400, type: "Bad Request" });
    },
  },
];
