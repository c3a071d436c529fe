/**
 * Tool lookup: the model is asked for the value at a key of a table that only a tool can read. Some keys contain another key instead of a
 * number, so the model has to call the tool again until it finds a number.
 *
 * The base model was trained on single tool calls with a repeated result; chained calls are new to it.
 */
import { uniform } from "../shared/draws.ts";
import { splitByHash, type Split, SPLITS } from "../shared/splits.ts";

export const SYSTEM_PROMPT = "Find the number.";

/** Max number of lookups from the question to the number. */
export const LONGEST_CHAIN = 3;
/** Number of letters in a key. */
const KEY_LENGTH = 3;
/** Number of digits in the answer. */
const ANSWER_LENGTH = 3;
/** Shares of the splits in sixteenths of first keys: thirteen for RL, one for each other split. */
const SHARES = [13, 1, 1, 1] as const;

/** Lookup problem: a chain of keys in `table` leads from `key` to `answer`. */
export interface LookupScenario {
  readonly id: string;
  /** First key, named in the question. */
  readonly key: string;
  /** Number at the end of the chain. */
  readonly answer: string;
  /** Tool result by key: another key, or the number. */
  readonly table: Readonly<Record<string, string>>;
}

/** Returns problem `index` of a split, a pure function of the seed. A first key belongs to exactly one split. */
export function lookupScenario(split: Split, seed: number, index: number, longest: number = LONGEST_CHAIN): LookupScenario {
  for (let attempt = 0; ; attempt++) {
    let draws = 0;
    const below = (count: number) => Math.floor(uniform(BigInt(seed), SPLITS.indexOf(split), index, attempt, draws++) * count);
    const chain = 1 + below(longest);
    const keys = Array.from({ length: chain }, () =>
      Array.from({ length: KEY_LENGTH }, () => String.fromCharCode(97 + below(26))).join(""),
    );
    const answer = Array.from({ length: ANSWER_LENGTH }, () => String(below(10))).join("");
    const [key] = keys as [string];
    if (splitOf(key) !== split || new Set(keys).size < chain) continue;
    return {
      id: [...keys, answer].join("-"),
      key,
      answer,
      table: Object.fromEntries(keys.map((each, at) => [each, keys[at + 1] ?? answer])),
    };
  }
}

/** Returns the split of the problems with first key `key`. */
export function splitOf(key: string): Split {
  return splitByHash(key, SHARES);
}

/** Returns the prompt messages of a problem. */
export function lookupMessages({ key }: LookupScenario): { role: "system" | "user"; content: string }[] {
  return [
    { role: "system", content: SYSTEM_PROMPT },
    { role: "user", content: `Find ${key}` },
  ];
}

/** Returns the tool's result for a key; `none` for an unknown key. */
export function lookUp(key: string, { table }: LookupScenario): string {
  return Object.hasOwn(table, key) ? (table[key] as string) : "none";
}

/** Returns the correct messages after the question: tool calls, tool results and the answer. */
export function goldMessages(scenario: LookupScenario) {
  const messages: GoldMessage[] = [];
  let at = scenario.key;
  for (let turn = 0; /[a-z]/.test(at); turn++) {
    const id = `call_${turn}`;
    const call = { id, type: "function" as const, function: { name: "lookup", arguments: JSON.stringify({ key: at }) } };
    at = lookUp(at, scenario);
    messages.push({ role: "assistant", content: "", tool_calls: [call] }, { role: "tool", tool_call_id: id, content: at });
  }
  messages.push({ role: "assistant", content: scenario.answer });
  return messages;
}

/** Message of the correct continuation. */
export type GoldMessage =
  | {
      readonly role: "assistant";
      readonly content: string;
      readonly tool_calls?: { id: string; type: "function"; function: { name: string; arguments: string } }[];
    }
  | { readonly role: "tool"; readonly tool_call_id: string; readonly content: string };

/** Returns 1 if the answer is exactly the number at the end of the chain, else 0. */
export function correct(text: string, { answer }: LookupScenario): number {
  return text.trim() === answer ? 1 : 0;
}

/** Returns the fraction of the chain's keys that were looked up. */
export function followed(keys: readonly string[], { table }: LookupScenario): number {
  const chain = Object.keys(table);
  return chain.filter((key) => keys.includes(key)).length / chain.length;
}

/** Max tokens per turn: a tool call with its key, and the end token. */
export const MAX_COMPLETION_TOKENS = 32;
/** Max model turns: all lookups of the longest chain, one failed lookup, and the answer. */
export const MOST_TURNS = LONGEST_CHAIN + 2;
