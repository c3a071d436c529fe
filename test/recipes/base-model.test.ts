import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

import { Tokenizer } from "@huggingface/tokenizers";
import { describe, expect, it, test } from "vitest";

import { drawExercise, showsAddition, showsReversal, type Exercise } from "../../recipes/base-model/data.ts";
import { makeTokenizer, makeTokenizerConfig, SPECIAL_TOKENS, VOCABULARY_SIZE, wholePieces } from "../../recipes/base-model/tokenizer.ts";
import { compileTemplate } from "../../src/text/tokenizer/chat-template.ts";

const directory = fileURLToPath(new URL("../../models/whetstone-tiny/", import.meta.url));
const readJson = (name: string): Record<string, unknown> => JSON.parse(readFileSync(directory + name, "utf8")) as Record<string, unknown>;
const tokenizer = new Tokenizer(makeTokenizer(), makeTokenizerConfig());
const encode = (text: string): number[] => tokenizer.encode(text, { add_special_tokens: false }).ids;
const template = compileTemplate(makeTokenizerConfig()["chat_template"] as string);
const render = (context: Record<string, unknown>): string => template.render({ add_generation_prompt: false, ...context });

const says = (user: string, assistant: string): Exercise => ({
  kind: "test",
  messages: [
    { role: "user", content: user },
    { role: "assistant", content: assistant },
  ],
});

describe("tokenizer", () => {
  it("is the same as in the published model", () => {
    expect(readJson("tokenizer.json")).toEqual(makeTokenizer());
    expect(readJson("tokenizer_config.json")).toEqual(makeTokenizerConfig());
  });

  it("agrees with the model and generation configs", () => {
    const [end] = encode("<|end|>");
    const [pad] = encode("<|pad|>");
    expect(readJson("config.json")).toMatchObject({ vocab_size: VOCABULARY_SIZE, eos_token_id: end, pad_token_id: pad });
    expect(readJson("generation_config.json")).toMatchObject({ eos_token_id: end, pad_token_id: pad });
  });

  it.each(["", " ", "plain text", "Ünï — 漢字 😀 \u0000", "a  b\n\n c\t\r\n", "don't 1+1=2 …", "<|user|>x<|end|>", '{"a": ["b", 1.5]}'])(
    "decodes to the encoded text: %j",
    (text) => {
      const ids = encode(text);
      expect(text === "" ? "" : tokenizer.decode(ids)).toBe(text);
    },
  );

  it("has a distinct token for every id", () => {
    expect(new Set(Array.from({ length: VOCABULARY_SIZE }, (_, id) => tokenizer.id_to_token(id))).size).toBe(VOCABULARY_SIZE);
  });

  it("spells random strings with one token per character, after any text", () => {
    for (const text of ["thequick", "reverse", "qqqq", "20264", "handon"]) {
      expect(encode(text)).toHaveLength(text.length);
    }
    expect(encode(" handon")).toHaveLength(7);
    expect(encode("x-byte")).toHaveLength(6);
  });

  it("encodes a listed word as one token", () => {
    for (const piece of wholePieces()) {
      expect([piece, encode(piece).length]).toEqual([piece, 1]);
    }
  });
});

describe("chat template", () => {
  it("starts every turn with one token, ends it with <|end|> and inserts nothing", () => {
    const messages = [
      { role: "system", content: "S " },
      { role: "user", content: " u\n" },
      { role: "assistant", content: "a" },
    ];
    expect(render({ messages })).toBe("<|system|>S <|end|><|user|> u\n<|end|><|assistant|>a<|end|>");
    expect(render({ messages: messages.slice(0, 2), add_generation_prompt: true })).toBe(
      "<|system|>S <|end|><|user|> u\n<|end|><|assistant|>",
    );
  });

  it("lists tools in the system turn, with and without a system message", () => {
    const tools = [{ type: "function", function: { name: "f", parameters: { type: "object" } } }];
    const listed = '<tools>\n{"name": "f", "parameters": {"type": "object"}}\n</tools>';
    expect(render({ messages: [{ role: "user", content: "u" }], tools })).toBe(`<|system|>${listed}<|end|><|user|>u<|end|>`);
    expect(render({ messages: [{ role: "developer", content: "S" }], tools })).toBe(`<|system|>S\n${listed}<|end|>`);
  });

  it("writes tool calls into the text of the assistant, and results into a separate turn", () => {
    const messages = [
      {
        role: "assistant",
        content: null,
        tool_calls: [
          { id: "1", type: "function", function: { name: "f", arguments: { b: 'é"', a: 1 } } },
          { id: "2", type: "function", function: { name: "g", arguments: '{"a":1}' } },
          { id: "3", type: "function", function: { name: "h", arguments: {} } },
        ],
      },
      { role: "tool", content: "R", tool_call_id: "1" },
    ];
    expect(render({ messages })).toBe(
      '<|assistant|><tool_call>{"name": "f", "arguments": {"b": "é\\"", "a": 1}}</tool_call>' +
        '<tool_call>{"name": "g", "arguments": {"a":1}}</tool_call><tool_call>{"name": "h", "arguments": {}}</tool_call><|end|><|tool|>R<|end|>',
    );
  });

  it("joins text parts with a line break, treats missing content as empty, and any other role as user", () => {
    const messages = [{ role: "pirate", content: [{ type: "text", text: "a" }, "b", { type: "other" }] }, { role: "assistant" }];
    expect(render({ messages })).toBe("<|user|>a\nb\n<|end|><|assistant|><|end|>");
  });

  it("marks exactly the text of the assistant and its end token for training", () => {
    const marked = (makeTokenizerConfig()["chat_template"] as string)
      .replace("{%- generation -%}", "{{- '[' -}}")
      .replace("{%- endgeneration -%}", "{{- ']' -}}");
    const messages = [
      { role: "user", content: "u" },
      { role: "assistant", content: "a" },
      { role: "user", content: "v" },
    ];
    expect(compileTemplate(marked).render({ messages })).toBe("<|user|>u<|end|><|assistant|>[a<|end|>]<|user|>v<|end|>");
  });
});

describe("exercises", () => {
  it("depend on seed and index only", () => {
    const draw = (seed: number, order: readonly number[]): string[] => order.map((index) => JSON.stringify(drawExercise(seed, index)));
    expect(draw(1, [0, 1, 2])).toEqual(draw(1, [2, 1, 0]).reverse());
    expect(draw(1, [0, 1, 2])).not.toEqual(draw(2, [0, 1, 2]));
  });

  it("never contain a solved task of a recipe", () => {
    const drawn = Array.from({ length: 5000 }, (_, index) => drawExercise(7, index));
    expect(drawn.filter(showsReversal)).toEqual([]);
    expect(drawn.filter(showsAddition)).toEqual([]);
    expect(
      drawn.filter(({ messages }) => messages.some(({ content }) => /revers(?!ed_text>)/i.test(content) && /character-by/.test(content))),
    ).toEqual([]);
  });

  it("end with an assistant message, and contain no control token", () => {
    for (let index = 0; index < 2000; index++) {
      const { messages } = drawExercise(3, index);
      expect(messages.at(-1)?.role).toBe("assistant");
      expect(messages.filter(({ content }) => SPECIAL_TOKENS.some((token) => content.includes(token)))).toEqual([]);
    }
  });
});

describe("showsReversal", () => {
  it.each([
    ["abcde", "edcba"],
    ["abcde", "<reversed_text>edcba</reversed_text>"],
    ["abcde", "e d c b a"],
    ["abcde", "e-d-c"],
    ["abcde", "xxdcbxx"],
    ["say a1b2", "2b1a"],
    ["Reverse ABC", "cba"],
  ])("detects %j → %j", (user, assistant) => {
    expect(showsReversal(says(user, assistant))).toBe(true);
  });

  it.each([
    ["abcde", "abcde"],
    ["abcba", "abcba"],
    ["abcde", "ed"],
    ["abcde", "eabcd"],
    ["abcde", "aabbccddee"],
  ])("ignores %j → %j", (user, assistant) => {
    expect(showsReversal(says(user, assistant))).toBe(false);
  });
});

describe("showsAddition", () => {
  it("detects two numbers with a plus between them", () => {
    expect(showsAddition(says("What is 1 + 2?", "3"))).toBe(true);
    expect(showsAddition(says("1 plus 2", "3"))).toBe(true);
    expect(showsAddition(says("Which number is after 12?", "13"))).toBe(false);
  });
});

test("the command prints its usage on request", () => {
  const program = fileURLToPath(new URL("../../recipes/base-model/train.ts", import.meta.url));
  const command = ["--conditions=whetstone/source", "--import", "tsx", program, "--help"];
  const { status, stdout, stderr } = spawnSync(process.execPath, command, { encoding: "utf8", timeout: 110_000 });
  expect({ status, stdout, stderr }).toEqual({ status: 0, stdout: expect.stringMatching(/^Usage: .*--run-dir DIR\]\n$/u), stderr: "" });
});
