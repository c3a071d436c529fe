/**
 * Tool calls: an assistant with seven tools gets a request in plain words, has to choose the tools, fill in their arguments, use the result of
 * one call in the next, and report the result. Every result is a function of the scenario, so a call with other arguments finds nothing.
 */
import { uniform } from "../shared/draws.ts";
import { splitByHash, type Split, SPLITS } from "../shared/splits.ts";
import { KINDS, type Kind } from "./kinds.ts";

/** Expected call of a tool, and the result that the tool returns for it. */
export interface ExpectedCall {
  readonly tool: string;
  readonly args: Readonly<Record<string, string | number>>;
  readonly result: string;
}

/** Request with the calls that it needs. */
export interface CallScenario {
  readonly id: string;
  /** Kind and contents of the request, without its wording and the results of its calls; belongs to exactly one split. */
  readonly topic: string;
  /** Name of the kind of request. */
  readonly kind: string;
  readonly request: string;
  /** Calls in the order in which they must be made, one per turn. */
  readonly calls: readonly ExpectedCall[];
  /** Answer of the examples. */
  readonly answer: string;
  /** Texts that an answer must contain. */
  readonly facts: readonly string[];
}

/** Shares of the splits in sixteenths of requests: eight for RL, four for SFT, one for validation, three held out. */
const SHARES = [8, 4, 1, 3] as const;

/** Draws the elements of a scenario. */
export interface Draw {
  /** Returns a whole number in `[0, count)`. */
  readonly below: (count: number) => number;
  readonly of: <T>(choices: readonly T[]) => T;
}

/** Returns scenario `index` of a split, a pure function of the seed. */
export function callScenario(split: Split, seed: number, index: number): CallScenario {
  const kind = KINDS[index % KINDS.length] as Kind;
  for (let attempt = 0; ; attempt++) {
    let draws = 0;
    const below = (count: number) => Math.floor(uniform(BigInt(seed), SPLITS.indexOf(split), index, attempt, draws++) * count);
    const draw: Draw = { below, of: (choices) => choices[below(choices.length)]! };
    const made = kind.make(draw);
    // Another wording of a held-out request, or other results of its calls, do not make it a training request.
    const results = new Set(made.calls.map(({ result }): string | number => result));
    const topic = [kind.name, ...made.calls.flatMap(({ args }) => Object.values(args).filter((value) => !results.has(value)))].join(" ");
    if (splitByHash(topic, SHARES) !== split) continue;
    return { ...made, id: `${split}-${index}`, topic, kind: kind.name };
  }
}

/** Returns the result of a call in a scenario; an error text for a call that the request does not need. */
export function resultOf(tool: string, args: Readonly<Record<string, unknown>>, { calls }: CallScenario): string {
  return calls.find((call) => isCall(call, tool, args))?.result ?? "nothing found";
}

/** Call as the model made it. */
export interface MadeCall {
  readonly tool: string;
  readonly args: Readonly<Record<string, unknown>>;
}

function isCall(expected: ExpectedCall, tool: string, args: Readonly<Record<string, unknown>>): boolean {
  const names = Object.keys(expected.args);
  return (
    tool === expected.tool &&
    Object.keys(args).length === names.length &&
    names.every((name) => Object.hasOwn(args, name) && same(args[name], expected.args[name]!))
  );
}

function same(value: unknown, expected: string | number): boolean {
  if (typeof expected === "number") return value === expected;
  return typeof value === "string" && value.trim().toLowerCase() === expected.toLowerCase();
}

/**
 * Returns the fraction of expected calls that were made in their order, divided by the number of calls made if that is larger: extra calls
 * lower the score.
 */
export function callScore(made: readonly MadeCall[], { calls }: CallScenario): number {
  let matched = 0;
  for (const { tool, args } of made) {
    const expected = calls[matched];
    if (expected !== undefined && isCall(expected, tool, args)) matched++;
  }
  return matched / Math.max(calls.length, made.length);
}

/** Max number of words of an answer; a longer one does not count as a report. */
const MAX_ANSWER_WORDS = 30;

/** Returns the fraction of facts that the answer contains; 0 for an empty or a long answer. */
export function reportScore(text: string, { facts }: CallScenario): number {
  if (text.trim() === "" || text.trim().split(/\s+/u).length > MAX_ANSWER_WORDS) return 0;
  return facts.filter((fact) => containsWord(text.toLowerCase(), fact.toLowerCase())).length / facts.length;
}

function containsWord(text: string, fact: string): boolean {
  const at = text.indexOf(fact);
  // "5" is not reported by "15" or "52".
  return at >= 0 && !/[\p{L}\d]/u.test(text[at - 1] ?? " ") && !/[\p{L}\d]/u.test(text[at + fact.length] ?? " ");
}

/** Returns 1 if exactly the expected calls were made and every fact is reported, else 0. */
export function correct(made: readonly MadeCall[], text: string, scenario: CallScenario): number {
  return callScore(made, scenario) === 1 && reportScore(text, scenario) === 1 ? 1 : 0;
}

/** Max tokens per turn. */
export const MAX_COMPLETION_TOKENS = 64;
/** Max model turns: two calls, one failed call, and the answer. */
export const MAX_TURNS = 4;

/** Returns the prompt messages of a scenario. */
export function requestMessages({ request }: CallScenario): { role: "system" | "user"; content: string }[] {
  return [
    { role: "system", content: "You are an assistant with tools. Use them, then report the result in one short sentence." },
    { role: "user", content: request },
  ];
}

/** Message of the correct continuation. */
export type GoldMessage =
  | {
      readonly role: "assistant";
      readonly content: string;
      readonly tool_calls?: { id: string; type: "function"; function: { name: string; arguments: string } }[];
    }
  | { readonly role: "tool"; readonly tool_call_id: string; readonly content: string };

/** Returns the correct messages after the request: calls, results and the answer. */
export function goldMessages({ calls, answer }: CallScenario): GoldMessage[] {
  const turns = calls.flatMap(({ tool, args, result }, turn): GoldMessage[] => {
    const id = `call_${turn}`;
    const call = { id, type: "function" as const, function: { name: tool, arguments: JSON.stringify(args) } };
    return [
      { role: "assistant", content: "", tool_calls: [call] },
      { role: "tool", tool_call_id: id, content: result },
    ];
  });
  return [...turns, { role: "assistant", content: answer }];
}
