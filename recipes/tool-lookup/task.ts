/**
 * Tool lookup: the model is asked for what stands at a key of a table that only a tool can read. Some keys hold another key instead of an
 * answer, so the model has to look again until it finds a number.
 *
 * The base model has seen single tool calls whose result it repeats; that a result can ask for another call is new to it.
 */
import { uniform } from "../shared/draws.ts";
import { splitByHash, type Split, SPLITS } from "../shared/splits.ts";

export const SYSTEM_PROMPT = "Find the number.";

/** Most lookups from the question to the number. */
export const LONGEST_CHAIN = 3;
/** Letters of a key. */
const KEY_LENGTH = 3;
/** Digits of the number at the end. */
const ANSWER_LENGTH = 3;
/** Of sixteen first keys: thirteen to practise on, one each for the other splits. */
const SHARES = [13, 1, 1, 1] as const;

/** One problem: the first key leads to the answer over `table`. */
export interface LookupScenario {
  readonly id: string;
  /** The key that is asked for. */
  readonly key: string;
  /** The number at the end of the chain. */
  readonly answer: string;
  /** What the tool finds at each key: another key, or a number. */
  readonly table: Readonly<Record<string, string>>;
}

/** Problem `index` of a split, a pure function of the seed. A first key belongs to exactly one split. */
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

/** Where the problems that ask for `key` belong. */
export function splitOf(key: string): Split {
  return splitByHash(key, SHARES);
}

/** The conversation that asks a problem. */
export function lookupMessages({ key }: LookupScenario): { role: "system" | "user"; content: string }[] {
  return [
    { role: "system", content: SYSTEM_PROMPT },
    { role: "user", content: `Find ${key}` },
  ];
}

/** What the tool gives for a key. */
export function lookUp(key: string, { table }: LookupScenario): string {
  return Object.hasOwn(table, key) ? (table[key] as string) : "none";
}

/** What a perfect model and the tool say after the question. */
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

/** A message of a gold conversation. */
export type GoldMessage =
  | {
      readonly role: "assistant";
      readonly content: string;
      readonly tool_calls?: { id: string; type: "function"; function: { name: string; arguments: string } }[];
    }
  | { readonly role: "tool"; readonly tool_call_id: string; readonly content: string };

/** 1 when the answer is the number at the end of the chain, and nothing else. */
export function correct(text: string, { answer }: LookupScenario): number {
  return text.trim() === answer ? 1 : 0;
}

/** Share of the chain's keys that the tool was asked for. */
export function followed(keys: readonly string[], { table }: LookupScenario): number {
  const chain = Object.keys(table);
  return chain.filter((key) => keys.includes(key)).length / chain.length;
}

/** A tool call with its key, and the end. */
export const MAX_COMPLETION_TOKENS = 32;
/** Turns of the model: every lookup of the longest chain, one in vain, and the answer. */
export const MOST_TURNS = LONGEST_CHAIN + 2;
