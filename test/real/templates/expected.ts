import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { gunzipSync } from "node:zlib";
import type { ChatMessage } from "../../../src/text/tokenizer/index.ts";
import { parseJsonValue } from "../../../src/text/tokenizer/jinja/index.ts";

/** Result of Python: a text, or the type and message of its error. */
export interface PythonResult {
  readonly text?: string;
  readonly error?: string;
  readonly message?: string;
}

/** A conversation with the results of Python, see test/oracle/real-templates.py. */
export interface TemplateCase {
  /** JSON text. */
  readonly variables: string;
  /** Rendering of the variables as they are. */
  readonly exact: PythonResult;
  /** Rendering of `apply_chat_template`. */
  readonly applied: PythonResult;
}

/** A released template with its conversations. */
export interface ReleasedTemplate {
  readonly name: string;
  readonly template: string;
  readonly tokens: Readonly<Record<string, string>>;
  readonly now: string;
  readonly cases: readonly TemplateCase[];
}

/** Variables of a conversation, as a client sends them. */
export interface Variables extends Readonly<Record<string, unknown>> {
  readonly messages: readonly ChatMessage[];
}

/**
 * Reads the output of `test/oracle/real-templates.py`: `templates/` below `WHETSTONE_REAL_MODEL`, or the directories in
 * `WHETSTONE_REAL_TEMPLATES`, separated by colons.
 */
export function releasedTemplates(): ReleasedTemplate[] {
  const { WHETSTONE_REAL_MODEL: models, WHETSTONE_REAL_TEMPLATES: given } = process.env;
  const directories = given?.split(":") ?? (models === undefined ? [] : [join(models, "templates")]);
  if (directories.length === 0) throw new Error("Set WHETSTONE_REAL_TEMPLATES to the output of test/oracle/real-templates.py.");
  return directories.flatMap((directory) =>
    readdirSync(directory)
      .filter((name) => name.endsWith(".json.gz"))
      .toSorted()
      .map((name) => JSON.parse(gunzipSync(readFileSync(join(directory, name))).toString()) as ReleasedTemplate),
  );
}

/** Returns the messages of variables as a client sends them, with the arguments as Python reads their JSON text. */
export function exactMessages(json: string): readonly ChatMessage[] {
  const { messages } = JSON.parse(json) as Variables;
  const exact = exactVariables(json)["messages"] as readonly Fields[];
  return messages.map((message, at) => {
    if (message.tool_calls === undefined || message.tool_calls === null) return message;
    const calls = exact[at]!.get("tool_calls") as readonly Fields[];
    const tool_calls = message.tool_calls.map((call, index) => {
      const called = calls[index]!.get("function") as Fields | undefined;
      return called === undefined ? call : { ...call, function: { ...call.function, arguments: called.get("arguments") } };
    });
    return { ...message, tool_calls };
  });
}

interface Fields {
  keys(): string[];
  get(key: string): unknown;
}

/** Returns variables as Python reads their JSON text: `1.0` stays a float, keys keep their order. */
export function exactVariables(json: string): Record<string, unknown> {
  const dict = parseJsonValue(json) as unknown as Fields;
  return Object.fromEntries(dict.keys().map((key) => [key, dict.get(key)]));
}
