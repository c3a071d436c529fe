/** Base models with chat templates that drop earlier reasoning by default, controlled by a variable. */
import { cp, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { onTestFinished } from "vitest";
import { shippedDirectory } from "../../src/service/models/shipped-base.ts";
import { loadTokenizer } from "../../src/text/tokenizer/index.ts";

interface Tags {
  readonly open: string;
  readonly close: string;
  /** Text in place of dropped reasoning. @default none */
  readonly dropped?: string;
  /** Whether the model, not the prompt, opens the reasoning. @default false */
  readonly isOpenedByModel?: boolean;
  /** Text that ends a message; without it, the header of the next message is the end token. @default "<|end|>" */
  readonly end?: string;
}

/** Template with reasoning in front of the answers for which `keeps` is true. */
function template(keeps: string, { open, close, dropped = "", isOpenedByModel = false, end = "<|end|>" }: Tags): string {
  return `
{%- set ns = namespace(last=-1) -%}
{%- for message in messages -%}{%- if message.role == 'user' -%}{%- set ns.last = loop.index0 -%}{%- endif -%}{%- endfor -%}
{%- for message in messages -%}
{{- '<|' + message.role + '|>' -}}
{%- set content = message.content -%}
{%- if message.role == 'assistant' -%}
{%- set reasoning = message.reasoning_content if message.reasoning_content is string else '' -%}
{%- if message.reasoning_content is not string and '</think>' in content -%}
{%- set reasoning = content.split('</think>')[0].split('<think>')[-1] -%}
{%- set content = content.split('</think>')[-1].lstrip('\\n') -%}
{%- endif -%}
{%- if ${keeps} -%}{{- ${open} + reasoning.strip('\\n') + ${close} -}}{%- else -%}{{- '${dropped}' -}}{%- endif -%}
{%- endif -%}
{{- content -}}
{%- for call in message.tool_calls or [] -%}
{{- '<tool_call>' + ({'name': call.function.name, 'arguments': call.function.arguments} | tojson) + '</tool_call>' -}}
{%- endfor -%}
{{- '${end}' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|assistant|>' + ${isOpenedByModel ? "''" : open} -}}{%- endif -%}`;
}

/** Templates by name, with the variable that keeps all reasoning. */
export const REASONING_TEMPLATES = {
  /** As of Qwen 3.6: the prompt opens the reasoning. */
  "preserve-thinking": {
    source: template("(preserve_thinking is defined and preserve_thinking is true) or loop.index0 > ns.last", {
      open: "'<think>\\n'",
      close: "'\\n</think>\\n\\n'",
    }),
    kwargs: { preserve_thinking: true },
  },
  /** As of GLM 5.1: the variable has the opposite meaning, dropped reasoning leaves its closing tag, and messages have no end. */
  "clear-thinking": {
    source: template("((clear_thinking is defined and not clear_thinking) or loop.index0 > ns.last) and reasoning", {
      open: "'<think>'",
      close: "'</think>'",
      dropped: "</think>",
      end: "",
    }),
    kwargs: { clear_thinking: false },
  },
  /** As of Qwen 3: earlier reasoning is always dropped, and an answer without reasoning has tags only if it is the last message. */
  none: {
    source: template("loop.index0 > ns.last and (loop.last or reasoning)", {
      isOpenedByModel: true,
      open: "'<think>\\n'",
      close: "'\\n</think>\\n\\n'",
    }),
  },
} as const;

/** Copies the shipped base model with another chat template, until the test has finished. */
export async function reasoningBase(name: keyof typeof REASONING_TEMPLATES) {
  const directory = await mkdtemp(join(tmpdir(), "whetstone-reasoning-"));
  onTestFinished(() => rm(directory, { recursive: true, force: true }));
  await cp(shippedDirectory(), directory, { recursive: true });
  await writeFile(join(directory, "chat_template.jinja"), REASONING_TEMPLATES[name].source);
  const tokenizer = await loadTokenizer(directory);
  const ends = [...tokenizer.eosTokenIds, ...tokenizer.encode("<|user|><|tool|>")];
  if (name === "clear-thinking") await writeFile(join(directory, "generation_config.json"), JSON.stringify({ eos_token_id: ends }));
  return { id: name, directory, vocabularySize: tokenizer.vocabularySize, contextLength: 4096, parameters: 1 };
}
