import { wireMessage } from "./messages.ts";

type Raw = Readonly<Record<string, unknown>>;

const MESSAGE = new Set(Object.keys(wireMessage.shape));
const TOOL = new Set(["type", "function"]);
const FUNCTION = new Set(["name", "description", "parameters"]);
const STREAM_OPTIONS = new Set(["include_usage", "continuous_usage_stats"]);

const isObject = (value: unknown): value is Raw => typeof value === "object" && value !== null && !Array.isArray(value);
const isSet = (value: unknown): boolean => value !== null && value !== undefined;

/**
 * Returns the unknown keys inside the messages, tools and stream options of a body, such as `messages.mood`, each once. Keys with the value
 * null are skipped: clients send responses back with all their fields.
 */
export function unknownKeys(raw: Raw): string[] {
  const found = new Set<string>();
  const collect = (value: unknown, known: ReadonlySet<string>, path: string): void => {
    if (!isObject(value)) return;
    for (const key of Object.keys(value)) if (!known.has(key) && isSet(value[key])) found.add(`${path}.${key}`);
  };
  const each = (value: unknown): readonly unknown[] => (Array.isArray(value) ? value : []);
  for (const message of each(raw["messages"])) collect(message, MESSAGE, "messages");
  for (const tool of each(raw["tools"])) {
    collect(tool, TOOL, "tools");
    if (isObject(tool)) collect(tool["function"], FUNCTION, "tools.function");
  }
  collect(raw["stream_options"], STREAM_OPTIONS, "stream_options");
  return [...found];
}
