/** A small byte-level tokenizer for tests: 256 bytes, a few merges, structural tokens, and a chat template. */

import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, onTestFinished } from "vitest";
import { byteAlphabet } from "../../src/text/tokenizer/byte-alphabet.ts";
import { type ChatTokenizer, loadTokenizer } from "../../src/text/tokenizer/index.ts";

export const SIMPLE_TEMPLATE =
  "{%- for message in messages -%}{{- '<|' + message.role + '|>' + message.content -}}" +
  "{%- for call in message.tool_calls or [] -%}{{- '[' + call.function.name + ' ' + (call.function.arguments | tojson) + ']' -}}{%- endfor -%}" +
  "{{- '<|end|>\\n' -}}{%- endfor -%}{%- if add_generation_prompt -%}{{- '<|assistant|>' -}}{%- endif -%}";

export const SPECIAL = ["<|system|>", "<|user|>", "<|assistant|>", "<|end|>", "<|pad|>"] as const;

/** Files of a model directory; a file with `undefined` is not written. */
export interface ModelFiles {
  readonly "tokenizer.json": Record<string, unknown> | string | undefined;
  readonly "tokenizer_config.json": Record<string, unknown> | string | undefined;
  readonly "generation_config.json": Record<string, unknown> | string | undefined;
  readonly "config.json": Record<string, unknown> | string | undefined;
  readonly "chat_template.jinja": string | undefined;
}

export function modelFiles(changes: Partial<ModelFiles> = {}): ModelFiles {
  const alphabet = byteAlphabet();
  const merges = [
    ["h", "e"],
    ["l", "l"],
    ["he", "ll"],
    ["hell", "o"],
    ["Ġ", "w"],
  ];
  const tokens = [...alphabet, ...merges.map(([a, b]) => `${a}${b}`)];
  const vocab = Object.fromEntries(tokens.map((token, id) => [token, id]));
  return {
    "tokenizer.json": {
      version: "1.0",
      added_tokens: SPECIAL.map((content, index) => ({ id: tokens.length + index, content, special: true, normalized: false })),
      normalizer: null,
      pre_tokenizer: { type: "ByteLevel", add_prefix_space: false, trim_offsets: true, use_regex: true },
      post_processor: null,
      decoder: { type: "ByteLevel" },
      model: { type: "BPE", vocab, merges },
    },
    "tokenizer_config.json": { eos_token: "<|end|>", pad_token: { content: "<|pad|>" }, chat_template: SIMPLE_TEMPLATE },
    "generation_config.json": { eos_token_id: [tokens.length + 3, tokens.length + 4] },
    "config.json": { vocab_size: tokens.length + SPECIAL.length + 3 },
    "chat_template.jinja": undefined,
    ...changes,
  };
}

/** Writes the files into a directory that the test removes when it ends. */
export async function modelDirectory(changes: Partial<ModelFiles> = {}): Promise<string> {
  const directory = await writeModel(changes);
  onTestFinished(() => rm(directory, { recursive: true }));
  return directory;
}

/** Writes a model for all tests of a file, removes it after them, and loads its tokenizer. */
export async function sharedModel(): Promise<{ readonly directory: string; readonly tokenizer: ChatTokenizer }> {
  const directory = await writeModel();
  afterAll(() => rm(directory, { recursive: true }));
  return { directory, tokenizer: await loadTokenizer(directory) };
}

/** Writes the files into a directory; the caller removes it. */
export async function writeModel(changes: Partial<ModelFiles> = {}): Promise<string> {
  const directory = await mkdtemp(join(tmpdir(), "whetstone-tokenizer-"));
  for (const [name, content] of Object.entries(modelFiles(changes)) as [string, unknown][]) {
    if (content !== undefined) await writeFile(join(directory, name), typeof content === "string" ? content : JSON.stringify(content));
  }
  return directory;
}
