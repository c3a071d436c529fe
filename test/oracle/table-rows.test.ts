/** Messages as table formats write them (absent fields null, tool arguments as objects) mean the same to every reader. */
import { readFileSync } from "node:fs";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { readChatJsonl, type ChatExample } from "../../src/library/dataset/index.ts";
import { buildRlBatch, readSftExample, sftSequences } from "../../src/learner/index.ts";
import { trajectoryGroup } from "../../src/base/schema/index.ts";
import { toTemplateMessage, wireMessage } from "../../src/service/chat/request/messages.ts";
import { sharedModel } from "../tokenizer/fixture.ts";

interface Line {
  readonly messages: readonly Record<string, unknown>[];
}
const rows = JSON.parse(readFileSync(new URL("table-rows.json", import.meta.url), "utf8")) as Record<
  "examples" | "datasets" | "pandas",
  Line[]
>;
/** The same conversations as OpenAI's clients write them: no null fields, arguments as JSON text. */
const plain = rows.examples.map(({ messages }) => ({
  messages: messages.map(({ tool_calls: calls, ...message }) => ({
    ...message,
    ...(calls === undefined
      ? {}
      : {
          tool_calls: (calls as { function: { arguments: object } }[]).map((call) => ({
            ...call,
            function: { ...call.function, arguments: JSON.stringify(call.function.arguments) },
          })),
        }),
  })),
}));

const { directory, tokenizer } = await sharedModel();

const limits = { contextLength: 1024 };
const sft = (line: unknown) => sftSequences(readSftExample(line, "line 1"), tokenizer, limits);

/** Returns a group of two rollouts with turns without token ids. */
function rl({ messages }: Line) {
  const rollout = (reward: number) => ({
    messages_and_choices: [...messages.slice(0, -1), { message: messages.at(-1), finish_reason: "stop" }],
    reward,
  });
  const group = trajectoryGroup.parse({ trajectories: [rollout(0), rollout(1)] });
  return buildRlBatch([group], { allow_training_without_logprobs: true }, limits, { tokenizer }).rows.map(({ tokens }) => [...tokens]);
}

function chat({ messages }: Line): string {
  return tokenizer.renderChat(messages.map((message) => toTemplateMessage(wireMessage.parse(message))));
}

describe.each(["datasets", "pandas"] as const)("rows written by %s", (writer) => {
  it.each(rows[writer].map((line, index) => [index, line] as const))(
    "train and sample the same tokens as OpenAI's form (%i)",
    (index, line) => {
      const expected = plain[index]!;
      expect(sft(line)).toEqual(sft(expected));
      expect(rl(line)).toEqual(rl(expected));
      expect(chat(line)).toBe(chat(expected));
    },
  );

  it("are read by readChatJsonl with arguments as JSON text", async () => {
    const path = join(directory, `${writer}.jsonl`);
    await writeFile(path, rows[writer].map((line) => JSON.stringify(line)).join("\n"));
    const examples: ChatExample[] = [];
    for await (const example of readChatJsonl(path)) examples.push(example);
    expect(examples[0]?.messages[1]?.tool_calls?.[0]?.function.arguments).toBe('{"path":"a.txt"}');
    expect(examples.map(sft)).toEqual(plain.map(sft));
  });
});
