/** Answers that are too long for a single write. */
import { describe, expect, it } from "vitest";
import { textStream } from "../../../src/service/chat/answer/text-stream.ts";
import { HELLO, useChatServer } from "./support.ts";

const { start } = await useChatServer({ contextLength: 400, limits: { maxChoices: 64 } });

describe("a long answer", () => {
  it("has every choice and every log-probability, with or without a stream", async () => {
    const server = await start({ contextLength: 400, says: "some words ".repeat(40) });
    const body = { ...HELLO, n: 40, temperature: 1, seed: 3, logprobs: true, top_logprobs: 5, max_tokens: 60, return_token_ids: true };
    const answer = await server.complete(body);
    expect(answer.choices).toHaveLength(40);
    for (const { logprobs, token_ids: ids, message, finish_reason: reason } of answer.choices) {
      expect([logprobs.content.length, ids.length, reason]).toEqual([60, 60, "length"]);
      expect(logprobs.content.map(({ token }: { token: string }) => token).join("")).toBe(message.content);
    }
    expect(answer.usage.completion_tokens).toBe(2400);
    expect(answer.prompt_token_ids).toHaveLength(answer.usage.prompt_tokens);

    const events = await (await server.post({ ...body, stream: true, stream_options: { include_usage: true } })).text();
    const chunks = events.split("\n\n").flatMap((event) => (event.startsWith("data: {") ? [JSON.parse(event.slice(6))] : []));
    for (const choice of answer.choices) {
      const own = chunks.flatMap((chunk) => chunk.choices.filter(({ index }: { index: number }) => index === choice.index));
      expect(own.map(({ delta }) => delta.content ?? "").join("")).toBe(choice.message.content);
      expect(own.flatMap(({ logprobs }) => logprobs?.content ?? [])).toEqual(choice.logprobs.content);
      expect(own.at(-1).finish_reason).toBe("length");
    }
    expect(chunks.at(-1).usage.completion_tokens).toBe(2400);
  });

  it("is generated in parts, as its reader requests them", async () => {
    let made = 0;
    function* pieces(): Generator<string> {
      for (; made < 100; made++) yield "x".repeat(10_000);
    }
    const reader = textStream(pieces()).getReader();
    await reader.read();
    expect(made).toBeLessThan(20);
    let length = 0;
    for (let part = await reader.read(); !part.done; part = await reader.read()) length += part.value.length;
    expect([made, length]).toEqual([100, 930_000]);
  });
});
