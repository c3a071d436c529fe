/** Search for keys inside a chat request that this service does not know, for the log. */
import { isGiven } from "../../../dialects/index.ts";
import { requestTool } from "../../../base/schema/chat.ts";
import { WIRE_TYPES } from "./fields.ts";
import { isObject, wireMessage } from "./messages.ts";

type Raw = Readonly<Record<string, unknown>>;

const MESSAGE_KEYS = new Set(Object.keys(wireMessage.shape));
const TOOL_KEYS = new Set(Object.keys(requestTool.shape));
const FUNCTION_KEYS = new Set(Object.keys(requestTool.shape.function.shape));
const STREAM_OPTION_KEYS = new Set(Object.keys(WIRE_TYPES.streamOptions.shape));

/**
 * Returns the unknown keys inside the messages, tools and stream options of a body, such as `messages.mood`, each once. Keys with the value
 * null are skipped: clients send responses back with all their fields.
 */
export function unknownKeys(raw: Raw): string[] {
  const found = new Set<string>();
  const collect = (value: unknown, knownKeys: ReadonlySet<string>, path: string): void => {
    if (!isObject(value)) return;
    for (const key of Object.keys(value)) if (!knownKeys.has(key) && isGiven(value[key])) found.add(`${path}.${key}`);
  };
  const listOf = (value: unknown): readonly unknown[] => (Array.isArray(value) ? value : []);
  for (const message of listOf(raw["messages"])) collect(message, MESSAGE_KEYS, "messages");
  for (const tool of listOf(raw["tools"])) {
    collect(tool, TOOL_KEYS, "tools");
    if (isObject(tool)) collect(tool["function"], FUNCTION_KEYS, "tools.function");
  }
  collect(raw["stream_options"], STREAM_OPTION_KEYS, "stream_options");
  return [...found];
}
