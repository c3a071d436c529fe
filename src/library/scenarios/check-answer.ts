/** Checks of the scenarios that a model has written: every rejection states its reason, and valid scenarios are accepted all the same. */
import type { ChatCompletion } from "../../base/schema/index.ts";
import { shown } from "../../base/util/shown.ts";
import { isRecord, parseJson } from "../../base/util/values.ts";
import type { DifficultyRange } from "./prompt.ts";
import { normalizedTask, taskId, type ToolScenario } from "./scenario.ts";

/**
 * Reason for a rejection: `answer` (no JSON object with a list `scenarios`), `count` (fewer or more scenarios than requested), `surplus` (a
 * valid scenario beyond the requested number), or of one scenario: `format` (a wrong type), `difficulty` (out of range), `tool` (an unknown
 * name), `empty` (a task without text) or `duplicate` (a task that exists already).
 */
export type RejectionReason = "answer" | "count" | "surplus" | "format" | "difficulty" | "tool" | "empty" | "duplicate";

/** Rejected answer or scenario. */
export interface Rejection {
  /** Number of the request, from 1. */
  readonly request: number;
  /** Kind of the problem. */
  readonly reason: RejectionReason;
  /** Expected and received value, with the position in the answer. */
  readonly message: string;
}

/** Rejection before the number of its request is known. */
type Problem = Omit<Rejection, "request">;

/** Rules for the scenarios of one answer of the model. */
export interface AnswerRules {
  /** Requested number of scenarios. */
  readonly size: number;
  readonly toolNames: ReadonlySet<string>;
  readonly difficulty: DifficultyRange;
  /** Normalized tasks that exist already; accepted ones are added. */
  readonly known: Set<string>;
}

/** Scenarios of an answer that passed all checks, and the problems of the others. */
export interface CheckedAnswer {
  /** Text of the answer. */
  readonly text: string;
  readonly accepted: readonly ToolScenario[];
  readonly problems: readonly Problem[];
}

/**
 * Checks the model's answer to a request for scenarios. Valid scenarios are accepted even if the answer has others; at most `rules.size`
 * are accepted.
 */
export function checkedAnswer({ choices: [choice] }: ChatCompletion, rules: AnswerRules): CheckedAnswer {
  const text = choice?.message.content ?? "";
  const values = scenariosIn(text);
  if (values === null) {
    const cut = choice?.finish_reason === "length" ? "; the answer was cut at its token limit" : "";
    const message = `expected a JSON object with a list \`scenarios\`, got ${shown(text)}${cut}`;
    return { text, accepted: [], problems: [{ reason: "answer", message }] };
  }
  const problems: Problem[] = [];
  if (values.length !== rules.size) {
    problems.push({ reason: "count", message: `expected ${rules.size} entries in \`scenarios\`, got ${values.length}` });
  }
  const accepted: ToolScenario[] = [];
  for (const [index, value] of values.entries()) {
    const scenario = checkedScenario(value, `scenarios[${index}]`, rules);
    if ("reason" in scenario) problems.push(scenario);
    else if (accepted.length === rules.size) problems.push({ reason: "surplus", message: `\`scenarios[${index}]\` was not requested` });
    else {
      rules.known.add(normalizedTask(scenario.task));
      accepted.push(scenario);
    }
  }
  return { text, accepted, problems };
}

/** Returns the list `scenarios` of an answer, also inside one fenced block, as endpoints without structured output write it; else null. */
function scenariosIn(text: string): readonly unknown[] | null {
  const fenced = /^\s*```(?:json)?\s*\n(.*?)\n\s*```\s*$/su.exec(text)?.[1];
  const value = parseJson(fenced ?? text);
  return isRecord(value) && Array.isArray(value["scenarios"]) ? (value["scenarios"] as unknown[]) : null;
}

/** Returns a scenario, or the first problem of a value. @param path - Path of the value in the answer, for messages. */
function checkedScenario(
  value: unknown,
  path: string,
  { toolNames, difficulty: { min, max }, known }: AnswerRules,
): ToolScenario | Problem {
  if (typeof value !== "object" || value === null)
    return { reason: "format", message: `\`${path}\`: expected an object, got ${shown(value)}` };
  const { task, difficulty, tools = [] } = value as { readonly task?: unknown; readonly difficulty?: unknown; readonly tools?: unknown };
  if (typeof task !== "string") return { reason: "format", message: `\`${path}.task\`: expected a string, got ${shown(task)}` };
  if (typeof difficulty !== "number" || !Number.isInteger(difficulty)) {
    return { reason: "format", message: `\`${path}.difficulty\`: expected an integer, got ${shown(difficulty)}` };
  }
  if (!Array.isArray(tools) || !tools.every((name): name is string => typeof name === "string")) {
    return { reason: "format", message: `\`${path}.tools\`: expected a list of tool names, got ${shown(tools)}` };
  }
  const text = normalizedTask(task);
  if (text === "") return { reason: "empty", message: `\`${path}.task\`: expected an instruction, got ${shown(task)}` };
  if (difficulty < min || difficulty > max) {
    return { reason: "difficulty", message: `\`${path}.difficulty\`: expected an integer from ${min} to ${max}, got ${difficulty}` };
  }
  const unknown = tools.find((name) => !toolNames.has(name));
  if (unknown !== undefined) {
    return { reason: "tool", message: `\`${path}.tools\`: expected names of the agent's tools, got ${shown(unknown)}` };
  }
  if (known.has(text)) return { reason: "duplicate", message: `\`${path}.task\`: expected a new task, got ${shown(task)} again` };
  return Object.freeze({ id: taskId(task), task: task.trim(), difficulty, tools: Object.freeze([...new Set(tools)]) });
}
