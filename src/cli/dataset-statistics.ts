/** Statistics of training examples for `whetstone dataset stats`. */
import type { Dataset } from "../library/dataset/index.ts";
import { digestOf, identityText } from "../library/dataset/keys.ts";
import { summarize, type Summary } from "../base/trajectory/index.ts";
import { completionTokens } from "../base/trajectory/statistics.ts";
import { table } from "./table.ts";

/** Statistics of training examples. */
export interface DatasetStatistics {
  readonly examples: number;
  /** Examples with the same conversation as an earlier one. */
  readonly duplicates: number;
  /** Examples with at least one sampled turn, which have rewards. */
  readonly sampled: number;
  /** Examples with at least one tool. */
  readonly withTools: number;
  /** Messages per example. */
  readonly messages: Summary;
  /** Assistant messages per example. */
  readonly assistantMessages: Summary;
  /** Characters of all messages per example. */
  readonly characters: Summary;
  /** Sampled tokens per example with sampled turns. */
  readonly completionTokens: Summary;
  /** Reward of the examples with sampled turns. */
  readonly reward: Summary;
}

/** Property of an example that is summarized. */
type Measure = "messages" | "assistant" | "characters" | "tokens" | "rewards";

/** Computes the statistics in one pass; memory grows by a few numbers per example. */
export async function datasetStatistics(examples: Dataset): Promise<DatasetStatistics> {
  const values: Record<Measure, number[]> = { messages: [], assistant: [], characters: [], tokens: [], rewards: [] };
  /** Digests of the conversations so far. */
  const conversations = new Set<string>();
  let withTools = 0;
  for await (const example of examples) {
    const messages = example.messages();
    values.messages.push(messages.length);
    values.assistant.push(messages.filter(({ role }) => role === "assistant").length);
    values.characters.push(messages.reduce((sum, { content }) => sum + textLength(content), 0));
    if ((example.tools ?? []).length > 0) withTools++;
    const choices = example.allChoices;
    if (choices.length > 0) {
      values.tokens.push(choices.reduce((sum, choice) => sum + completionTokens(choice), 0));
      values.rewards.push(example.reward);
    }
    conversations.add(digestOf(identityText(example, "messages")).toString("base64"));
  }
  return {
    examples: values.messages.length,
    duplicates: values.messages.length - conversations.size,
    sampled: values.rewards.length,
    withTools,
    messages: summarize(values.messages),
    assistantMessages: summarize(values.assistant),
    characters: summarize(values.characters),
    completionTokens: summarize(values.tokens),
    reward: summarize(values.rewards),
  };
}

/** Returns the characters of a message's content; parts without text count as none. */
function textLength(content: unknown): number {
  if (typeof content === "string") return content.length;
  return Array.isArray(content) ? content.reduce<number>((sum, part: { readonly text?: string }) => sum + (part.text?.length ?? 0), 0) : 0;
}

/** Lays out the statistics as lines: counts, and a table with a row per summary that has values. */
export function* statisticsLines({ examples, duplicates, sampled, withTools, ...summaries }: DatasetStatistics): Generator<string> {
  yield `${examples} examples, ${duplicates} duplicates, ${sampled} with sampled turns, ${withTools} with tools`;
  const rows = Object.entries(summaries).filter(([, { count }]) => count > 0);
  const number = (value: number) => String(Number(value.toPrecision(4)));
  const column = (title: "mean" | "min" | "median" | "max") => ({
    title,
    cell: ([, summary]: [string, Summary]) => number(summary[title]),
    align: "right" as const,
  });
  yield* table(rows, [
    { title: "per example", cell: ([name]) => name.replaceAll(/[A-Z]/gu, (letter) => ` ${letter.toLowerCase()}`) },
    column("mean"),
    column("min"),
    column("median"),
    column("max"),
  ]);
}
