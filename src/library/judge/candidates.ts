/**
 * Presentation of rollouts to a judge. Parts that all rollouts share are shown once, and equal rollouts are one candidate. Ids and order of
 * the candidates depend on their content and a seed alone.
 */
import { createHash } from "node:crypto";
import type { RequestMessage, Tool } from "../../base/schema/index.ts";
import { isChoice, toMessages } from "../../base/trajectory/messages.ts";
import type { Trajectory, TrajectoryHistory } from "../../base/trajectory/trajectory.ts";
import { itemAt } from "../../base/util/values.ts";

/** Rollout with the parts that a judge sees. */
export type ShownRollout = Pick<Trajectory, "messagesAndChoices" | "additionalHistories" | "tools">;

/** Rollouts of one group, prepared for a judge. */
export interface CandidateSet {
  /** JSON of the messages with which all rollouts begin; null if the first messages differ. */
  readonly context: string | null;
  /** JSON of the tools that all rollouts have; null without tools, and if the rollouts have different ones, which `contents` then shows. */
  readonly tools: string | null;
  /** JSON of each distinct rollout without `context` and `tools`. */
  readonly contents: readonly string[];
  /** For each rollout, the index of its content in `contents`. */
  readonly contentOf: readonly number[];
}

/** Content of {@link CandidateSet} with its id. */
export interface Candidate {
  readonly id: string;
  /** Index in `contents`. */
  readonly index: number;
  readonly content: string;
}

/** Prepares rollouts. Two rollouts are the same candidate if their messages, tools and additional histories are equal. */
export function candidateSet(rollouts: readonly ShownRollout[]): CandidateSet {
  const parts = rollouts.map((rollout) => ({
    messages: toMessages(rollout.messagesAndChoices).map(jsonLine),
    tools: toolsJson(rollout.tools),
    additional: rollout.additionalHistories.map(historyJson),
  }));
  const histories = parts.map(({ messages }) => messages);
  const hasSameTools = new Set(parts.map(({ tools }) => tools)).size <= 1;
  /** Returns the content of a rollout without its first `start` messages, and without tools that all rollouts have. */
  const contentFrom = (start: number, { messages, tools, additional }: (typeof parts)[number]) =>
    contentJson(messages.slice(start), hasSameTools ? null : tools, additional);
  const fullContents = parts.map((each) => contentFrom(0, each));
  const distinctContents = [...new Set(fullContents)];
  // Equal rollouts share all messages; their context then ends where sampling began.
  const maxContextLength = distinctContents.length === 1 ? turnStart(itemAt(rollouts, 0)) : Infinity;
  const contextLength = prefixLength(histories, maxContextLength);
  return {
    context: contextLength === 0 ? null : `[${itemAt(histories, 0).slice(0, contextLength).join(",")}]`,
    tools: hasSameTools ? (parts[0]?.tools ?? null) : null,
    contents: distinctContents.map((full) => contentFrom(contextLength, itemAt(parts, fullContents.indexOf(full)))),
    contentOf: fullContents.map((full) => distinctContents.indexOf(full)),
  };
}

/**
 * Gives each content an id and returns them in the order of their ids. Ids are a keyed hash of the content, so that neither ids nor order
 * depend on the order of the rollouts, and a rollout cannot predict the id of another one. No id occurs in a shown text.
 *
 * @param key - Seed and sample; another key gives other ids and another order.
 */
export function labeled({ contents, context, tools }: Pick<CandidateSet, "contents" | "context" | "tools">, key: string): Candidate[] {
  for (let attempt = 0; ; attempt++) {
    const candidates = contents.map((content, index) => ({ id: idOf(`${key}:${attempt}:${content}`), index, content }));
    const ids = candidates.map(({ id }) => id);
    const isSafe = ids.every((id) => [...contents, context, tools].every((text) => text?.includes(id) !== true));
    if (isSafe && new Set(ids).size === ids.length) return candidates.sort((a, b) => (a.id < b.id ? -1 : 1));
  }
}

/** Letters of ids: sixteen consonants, so that no id is a word or a number. */
const LETTERS = "bcdfghjkmnpqrstv";
/** Number of letters of an id, each of 4 bits. */
const ID_LENGTH = 10;

/** Returns the first 40 bits of SHA-256 as letters. */
function idOf(text: string): string {
  const hex = createHash("sha256").update(text).digest("hex").slice(0, ID_LENGTH);
  return Array.from(hex, (digit) => LETTERS[Number.parseInt(digit, 16)]).join("");
}

/**
 * Returns the number of leading messages that all histories share: at most `max`, and fewer than the shortest history has, so that each
 * keeps at least one message of its own.
 */
function prefixLength(histories: readonly (readonly string[])[], max: number): number {
  const [firstHistory = []] = histories;
  const shortest = Math.min(...histories.map(({ length }) => length));
  const limit = Math.max(0, Math.min(max, shortest - 1));
  for (let length = 0; length < limit; length++) {
    if (histories.some((history) => history[length] !== firstHistory[length])) return length;
  }
  return limit;
}

/** Returns the position of the first sampled turn; 0 without one. */
function turnStart({ messagesAndChoices }: ShownRollout): number {
  return Math.max(0, messagesAndChoices.findIndex(isChoice));
}

/** Returns the JSON of a rollout. `messages`, `tools` and `additional` are JSON texts. */
function contentJson(messages: readonly string[], tools: string | null, additional: readonly string[]): string {
  const parts = [
    `"messages":[${messages.join(",")}]`,
    ...(tools === null ? [] : [`"tools":${tools}`]),
    ...(additional.length === 0 ? [] : [`"additional_conversations":[${additional.join(",")}]`]),
  ];
  return `{${parts.join(",")}}`;
}

/** Returns the JSON of an additional history. */
function historyJson({ messagesAndChoices, tools }: TrajectoryHistory): string {
  return contentJson(toMessages(messagesAndChoices).map(jsonLine), toolsJson(tools), []);
}

/** Returns the JSON of tools; null without tools. */
function toolsJson(tools: readonly Tool[]): string | null {
  return tools.length === 0 ? null : jsonLine(tools);
}

/** Serializes a value as one line: JSON escapes line breaks, and the separators that some programs read as line breaks are escaped here. */
export function jsonLine(value: readonly Tool[] | RequestMessage | string): string {
  return JSON.stringify(value).replaceAll(/[\u0085\u2028\u2029]/g, (mark) => `\\u${mark.charCodeAt(0).toString(16).padStart(4, "0")}`);
}
