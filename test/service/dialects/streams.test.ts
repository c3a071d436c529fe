/** Streams that end in the answer of a request without a stream. */
import { fileURLToPath } from "node:url";
import { expect, it } from "vitest";
import { loadTokenizer } from "../../../src/text/tokenizer/index.ts";
import { startTestService } from "../support.ts";
import { assembledMessage, send } from "./players.ts";

const user = { role: "user", content: "hi" };

it("a stream with reasoning, text and calls ends in the answer of a request without a stream", async () => {
  const directory = fileURLToPath(new URL("../../../models/whetstone-tiny", import.meta.url));
  const tokenizer = await loadTokenizer(directory);
  const call = (name: string): string => `<tool_call>{"name": "${name}", "arguments": {"a": "naïve 🦊"}}</tool_call>`;
  const texts = [
    `the plan</think>See. ${call("add")}${call("math.sub")}`,
    `</think>${call("add")}`,
    "all reasoning",
    "why</think>so",
    "</think>",
  ];
  let said = "";
  const test = await startTestService({
    limits: { chat: { reasoningParser: "think" } },
    engine: {
      bases: [{ id: "tiny", directory, vocabularySize: tokenizer.vocabularySize, contextLength: 4000, parameters: 1 }],
      script: () => [...tokenizer.encode(said), tokenizer.eosTokenIds[0]!],
    },
  });
  const functions = [
    { type: "function", name: "add" },
    { type: "namespace", name: "math", tools: [{ type: "function", name: "sub" }] },
  ];
  const more = { return_token_ids: true, logprobs: true };
  const stable = (value: object): any =>
    JSON.parse(JSON.stringify(value, (key, inner: unknown) => (["id", "call_id", "created_at"].includes(key) ? undefined : inner)));
  for (const text of texts) {
    said = text;
    const message = { messages: [user], tools: [{ name: "add" }, { name: "math.sub" }], ...more };
    const plain = (await send(test, "/v1/messages", message)).body;
    expect(stable(assembledMessage((await send(test, "/v1/messages", { ...message, stream: true })).events))).toEqual(stable(plain));
    const omitting = { ...message, thinking: { type: "adaptive", display: "omitted" } };
    const omitted = (await send(test, "/v1/messages", omitting)).body;
    expect(stable(assembledMessage((await send(test, "/v1/messages", { ...omitting, stream: true })).events))).toEqual(stable(omitted));
    const thinking = { type: "thinking", thinking: "", signature: expect.stringMatching(/^whetstone-reasoning:./u) };
    expect(stable(omitted.content)).toEqual(
      stable(
        plain.content.map((block: { type: string }) => (block.type === "thinking" ? { ...block, ...thinking, signature: "" } : block)),
      ).map((block: any) => (block.type === "thinking" ? thinking : block)),
    );
    // Sent back, the omitted reasoning is part of the turn.
    const turns = [plain, omitted].map(({ content }) => ({ ...message, messages: [user, { role: "assistant", content }, user] }));
    const [shown, hidden] = await Promise.all(turns.map(async (body) => (await send(test, "/v1/messages", body)).body.prompt_token_ids));
    expect(hidden).toEqual(shown);
    const response = { input: "hi", tools: functions, include: ["reasoning.encrypted_content"], reasoning: { summary: "auto" }, ...more };
    const whole = (await send(test, "/v1/responses", response)).body;
    const { events } = await send(test, "/v1/responses", { ...response, stream: true });
    expect(stable(events.at(-1)!.data.response)).toEqual(stable(whole));
    expect(events.map(({ data }) => data.sequence_number)).toEqual(events.map((_, index) => index));
    const done = events.filter(({ name }) => name === "response.output_item.done").map(({ data }) => data.item);
    expect(done).toEqual(events.at(-1)!.data.response.output);
  }
});
