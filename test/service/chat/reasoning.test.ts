/** Parsing of reasoning in answers. */
import { fc, test } from "@fast-check/vitest";
import { describe, expect, it } from "vitest";
import { hasEndedReasoning, ReasoningStream, splitReasoning } from "../../../src/service/chat/text/reasoning.ts";
import { chatServers, HELLO, joinChoice, readEvents, spelled, type ChatServer, type ChatServerOptions } from "./support.ts";

const startServer = chatServers();
const start = (says: string, options: ChatServerOptions = {}): Promise<ChatServer> =>
  startServer({ says, contextLength: 2000, limits: { reasoningParser: "think" }, ...options });
const CALL = '<tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call>';
const TOOLS = [{ type: "function", function: { name: "add" } }];

describe("an answer with reasoning", () => {
  it.each([
    ["<think>two and two</think>4", "two and two", "4"],
    ["two and two</think>4</think>", "two and two", "4</think>"],
    ["no end", "no end", null],
    ["<think></think>4", null, "4"],
  ])("separates reasoning and content of %j", async (says, reasoning, content) => {
    const server = await start(says);
    const { message } = (await server.complete(HELLO)).choices[0];
    expect(message).toMatchObject({ reasoning, content });
    const { chunks } = await readEvents(await server.post({ ...HELLO, stream: true }));
    const streamed = joinChoice(chunks);
    expect(streamed.content).toBe(content ?? "");
    expect(streamed.parts.map((part) => part.delta.reasoning ?? "").join("")).toBe(reasoning ?? "");
  });
  it("include_reasoning false omits only the reasoning", async () => {
    const server = await start("hm</think>4");
    const body = { ...HELLO, include_reasoning: false, return_token_ids: true };
    const { choices } = await server.complete(body);
    expect(choices[0].message).toMatchObject({ reasoning: null, content: "4" });
    const { chunks } = await readEvents(await server.post({ ...body, stream: true }));
    const { content, tokenIds, parts } = joinChoice(chunks);
    expect([content, tokenIds]).toEqual(["4", choices[0].token_ids]);
    expect(parts.every((part) => !("reasoning" in part.delta))).toBe(true);
    expect(JSON.stringify(server.log)).not.toContain("include_reasoning");
  });
  it("can precede tool calls", async () => {
    const server = await start(`I add</think>so: ${CALL}`);
    const { message, finish_reason } = (await server.complete({ ...HELLO, tools: TOOLS })).choices[0];
    expect(finish_reason).toBe("tool_calls");
    expect(message).toMatchObject({ reasoning: "I add", content: "so: ", tool_calls: [{ function: { name: "add" } }] });
    const { chunks } = await readEvents(await server.post({ ...HELLO, tools: TOOLS, stream: true }));
    expect(joinChoice(chunks)).toMatchObject({ content: "so: ", toolCalls: [{ function: { name: "add" } }], finishes: ["tool_calls"] });
  });
  it("has no reasoning if the prompt ends it within the current turn", async () => {
    const ended = { continue_final_message: true, add_generation_prompt: false };
    const messages = [...HELLO.messages, { role: "assistant", content: "<think>hm</think>" }];
    const server = await start("4");
    expect((await server.complete({ messages, ...ended })).choices[0].message).toMatchObject({ content: "4", reasoning: null });
    const later = [...messages, { role: "user", content: "and?" }];
    expect((await server.complete({ messages: later })).choices[0].message).toMatchObject({ content: null, reasoning: "4" });
    expect(hasEndedReasoning("a|b</think>", ["|"])).toBe(true);
    expect(hasEndedReasoning("a</think>|b", ["|"])).toBe(false);
    expect(hasEndedReasoning("a|</think><think>", ["|"])).toBe(false);
    expect(hasEndedReasoning("a|b", ["|"])).toBe(false);
  });
  it("keeps the sampled token ids in the next request, with or without the reasoning", async () => {
    const server = await start("", { says: spelled("the the</think>the end") });
    const first = await server.complete({ ...HELLO, return_token_ids: true });
    const { content, reasoning } = first.choices[0].message;
    const sampled = [...first.prompt_token_ids, ...first.choices[0].token_ids];
    for (const message of [
      { role: "assistant", content },
      { role: "assistant", content, reasoning },
    ]) {
      const messages = [...HELLO.messages, message, { role: "user", content: "more" }];
      const { prompt_token_ids } = await server.complete({ messages, return_token_ids: true });
      expect(prompt_token_ids.slice(0, sampled.length)).toEqual(sampled);
    }
  });
  it("is not parsed if no reasoning parser is configured", async () => {
    const server = await start("<think>a</think>b", { limits: {} });
    const { message } = (await server.complete({ ...HELLO, include_reasoning: false })).choices[0];
    expect(message).toMatchObject({ content: "<think>a</think>b", reasoning: null });
  });
});

const piece = fc.constantFrom("<think>", "</think>", "<", "</th", "ink>", "<thi", "text ", "nk>");
test.prop([fc.array(piece, { maxLength: 8 }), fc.infiniteStream(fc.integer({ min: 1, max: 6 }))])(
  "a stream is parsed like the whole text, for any chunk boundaries",
  (pieces, sizes) => {
    const text = pieces.join("");
    const stream = new ReasoningStream();
    let [reasoning, content] = ["", ""];
    for (let at = 0; at < text.length;) {
      const size = sizes.next().value;
      const part = stream.push(text.slice(at, at + size));
      reasoning += part.reasoning;
      content += part.content;
      at += size;
    }
    expect({ reasoning: reasoning + stream.takeHeldText(), content }).toEqual(splitReasoning(text));
  },
);
