/** Messages that ask a model for scenarios, and the schema of its answer. */
import type { JsonObject, RequestMessage } from "../../base/schema/index.ts";
import type { Sources } from "./sources.ts";

/** Smallest and largest accepted difficulty of a scenario, both inclusive. */
export interface DifficultyRange {
  /** Smallest difficulty, an integer from 1. */
  readonly min: number;
  /** Largest difficulty, an integer up to 5. */
  readonly max: number;
}

/** Max earlier tasks in a prompt: the newest ones, so that the prompt of a large dataset has a bounded length. */
const MAX_EARLIER_TASKS = 100;
/** Max problems of an answer that the request for its correction lists. */
const MAX_PROBLEMS = 20;

/** Parameters of {@link batchMessages}. */
export interface BatchParams extends Sources {
  /** Number of scenarios to ask for. */
  readonly size: number;
  readonly difficulty: DifficultyRange;
  /** Further instructions of the caller; undefined for none. */
  readonly instructions: string | undefined;
  /** Tasks accepted so far, oldest first. */
  readonly earlier: readonly string[];
}

/** Returns the messages that ask for a batch of scenarios. */
export function batchMessages({ tools, resources, size, difficulty, instructions, earlier }: BatchParams): RequestMessage[] {
  const { min, max } = difficulty;
  const parts = [
    `The agent has these tools, one JSON object per line:\n${lines(tools)}`,
    ...(resources.length === 0 ? [] : [`The agent can read these resources, one JSON object per line:\n${lines(resources)}`]),
    `Write ${size} different ${size === 1 ? "task" : "tasks"} that a user might give to the agent. For each task:`,
    [
      "- `task`: a complete instruction in one to three sentences. It has all the data that the agent needs beyond its tools, it can be done with these tools alone, and it does not mention the tools by name.",
      `- \`difficulty\`: an integer from ${min} to ${max}, on a scale from 1 (a single call) to 5 (many calls that depend on each other). Use all values of the range.`,
      "- `tools`: the names of the tools that a solution needs.",
    ].join("\n"),
    ...(instructions === undefined ? [] : [instructions]),
    ...(earlier.length === 0 ? [] : [`These tasks exist already; write other ones:\n${lines(earlier.slice(-MAX_EARLIER_TASKS))}`]),
    `Answer with a JSON object of the form {"scenarios": [{"task": "…", "difficulty": ${min}, "tools": ["…"]}]} with exactly ${size} ${entries(size)}.`,
  ];
  return [
    { role: "system", content: "You write tasks for an AI agent that works with tools. You answer with JSON only." },
    { role: "user", content: parts.join("\n\n") },
  ];
}

/**
 * Returns the message that asks for replacements of rejected scenarios.
 *
 * @param problems - Problems of the answer.
 * @param accepted - Number of accepted scenarios of the answer.
 * @param missing - Number of scenarios to write.
 */
export function retryMessage(problems: readonly string[], accepted: number, missing: number): RequestMessage {
  const items = problems.slice(0, MAX_PROBLEMS).map((problem) => `- ${problem}`);
  if (problems.length > MAX_PROBLEMS) items.push(`- and ${problems.length - MAX_PROBLEMS} more`);
  const acceptedNote =
    accepted === 0 ? "No scenario of the answer was accepted." : `The other ${accepted} scenarios were accepted; do not repeat them.`;
  const form = `Answer again with a JSON object of the same form, with exactly ${missing} new ${entries(missing)}.`;
  return { role: "user", content: `The answer has problems:\n${items.join("\n")}\n\n${acceptedNote} ${form}` };
}

/** Returns the `response_format` of a request for `size` scenarios. Every property is required, as the strict modes of endpoints demand. */
export function responseFormat(size: number, toolNames: readonly string[], { min, max }: DifficultyRange): JsonObject {
  const scenario = {
    type: "object",
    properties: {
      task: { type: "string" },
      difficulty: { type: "integer", minimum: min, maximum: max },
      tools: { type: "array", items: { type: "string", enum: [...toolNames] } },
    },
    required: ["task", "difficulty", "tools"],
    additionalProperties: false,
  };
  const schema = {
    type: "object",
    properties: { scenarios: { type: "array", minItems: size, maxItems: size, items: scenario } },
    required: ["scenarios"],
    additionalProperties: false,
  };
  return { type: "json_schema", json_schema: { name: "scenarios", strict: true, schema } };
}

/** Returns the JSON of each value on a line of its own. */
function lines(values: readonly unknown[]): string {
  return values.map((value) => JSON.stringify(value)).join("\n");
}

/** Returns the noun for a number of entries. */
function entries(count: number): string {
  return count === 1 ? "entry" : "entries";
}
