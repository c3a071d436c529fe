/** Parsing of one line of supervised data, and its conversion to token sequences. */

import { z } from "zod";
import { DataError } from "../base/errors.ts";
import { jsonObject } from "../base/schema/common.ts";
import { exampleWeight } from "../base/schema/example-weight.ts";
import { type MessageOrChoice, requestMessage, type Tool, tool, trajectory } from "../base/schema/index.ts";
import type { ChatTokenizer } from "../text/tokenizer/index.ts";
import { isChoice, requestMessageOf } from "../base/trajectory/messages.ts";
import { historiesOf as trajectoryHistories } from "../base/trajectory/trajectory.ts";
import { hasTokenIds, mergeTurns, readTurn, withPlaceholderLogprobs, type TokenTurn } from "./merge.ts";
import { renderedSequence } from "./rendered-sequence.ts";
import { fitsContext, requireTokenIds, countTrained } from "./sequences.ts";
import type { SequenceLimits, TokenSequence } from "./types.ts";
import { isRecord } from "../base/util/values.ts";

/** Relative weight of a line. */
const weight = exampleWeight.nullish();
/** Variables of the chat template. */
const templateVariables = jsonObject.nullish();
/** Line in the format of chat fine-tuning files. */
const chatLine = z.looseObject({
  messages: z.array(requestMessage).min(1),
  tools: z.array(tool).nullish(),
  weight,
  chat_template_kwargs: templateVariables,
});
/** Line with a trajectory. */
const trajectoryLine = trajectory.extend({ weight, chat_template_kwargs: templateVariables });

/** Conversation in the format of chat fine-tuning files, or a trajectory, which is recognized by the key `messages_and_choices`. */
export type SftExample = z.infer<typeof chatLine> | z.infer<typeof trajectoryLine>;

/** Options of {@link sftSequences}. */
export interface SftSequenceOptions {
  /** Assistant turns of each history to train on; other turns are context. @default "all" */
  readonly assistantTurns?: "all" | "last" | undefined;
  /** Location of the example for error messages. @default "example" */
  readonly where?: string | undefined;
}

/** Result of {@link sftSequences}. */
export interface SftSequences {
  /** Sequences: one per history, or several if not all turns of a history continue each other. Empty if all exceed the context. */
  readonly sequences: readonly TokenSequence[];
  /** Number of sequences dropped because they are longer than the context. */
  readonly droppedSequences: number;
  /** Trained tokens of the dropped sequences. */
  readonly droppedTokens: number;
  /** Bytes of the rendered text that the vocabulary has no token for. */
  readonly missingBytes: number;
}

/**
 * Validates one parsed line.
 *
 * @param value - Parsed JSON of the line.
 * @param where - Location of the line for error messages, e.g. `trajectories.jsonl line 3`.
 * @throws DataError `E_DATA` with the location and the expected content, if the line is invalid.
 */
export function readSftExample(value: unknown, where: string): SftExample {
  if (!isRecord(value) || (!("messages" in value) && !("messages_and_choices" in value))) {
    throw new DataError(`${where}: expected an object with \`messages\` or \`messages_and_choices\`.`);
  }
  const result = ("messages_and_choices" in value ? trajectoryLine : chatLine).safeParse(value);
  if (result.success) return result.data;
  const issue = result.error.issues[0];
  throw new DataError(`${where}: ${issue?.path.join(".") ?? ""}: ${issue?.message ?? "invalid"}`, { cause: result.error });
}

/**
 * Converts an example to token sequences, with cross-entropy on the assistant's tokens.
 *
 * - A chat line is rendered through the chat template. Every assistant message is trained, except messages with `weight: 0`.
 * - If all choices of a history have token ids, exactly these tokens are used; plain messages are context.
 * - If no choice of a history has token ids, the history is rendered and its choices are trained.
 * - A history without choices is treated as a chat line.
 * - Additional histories become separate sequences.
 * - With `assistantTurns: "last"` only the last trained turn of each history is trained, in its original context.
 *
 * The example's `weight` becomes the weight of its sequences; its `chat_template_kwargs` are variables of the template.
 *
 * @param example - Validated example, see {@link readSftExample}.
 * @param tokenizer - Tokenizer of the model, with its chat template.
 * @param limits - Context length and vocabulary size of the model.
 * @throws DataError `E_DATA` if an example has nothing to train, has token ids on only some choices of a history, has an invalid message
 *   weight or token id, or cannot be rendered turn by turn by the chat template.
 * @throws the errors of `ChatTokenizer.renderTraining`.
 */
export function sftSequences(
  example: SftExample,
  tokenizer: ChatTokenizer,
  limits: SequenceLimits,
  { assistantTurns = "all", where = "example" }: SftSequenceOptions = {},
): SftSequences {
  const histories = historiesOf(example, where);
  const historyResults = histories.map((history) => historySequences(history, tokenizer, { lastOnly: assistantTurns === "last" }));
  const sequences = historyResults.flatMap((history) => history.sequences);
  if (sequences.length === 0) throw new DataError(`${where}: expected at least one assistant message or choice to train on, found none.`);
  for (const sequence of sequences) requireTokenIds(sequence, limits, where);
  const fitting = sequences.filter((sequence) => fitsContext(sequence, limits));
  const dropped = sequences.filter((sequence) => !fitsContext(sequence, limits));
  const { weight: lineWeight } = example;
  return {
    sequences: typeof lineWeight === "number" ? fitting.map((sequence) => ({ ...sequence, weight: lineWeight })) : fitting,
    droppedSequences: dropped.length,
    droppedTokens: dropped.reduce((sum, sequence) => sum + countTrained(sequence), 0),
    missingBytes: historyResults.reduce((sum, history) => sum + history.missingBytes, 0),
  };
}

/** History of an example. */
interface ExampleHistory {
  readonly items: readonly MessageOrChoice[];
  readonly tools: readonly Tool[] | null | undefined;
  /** Variables of the chat template. */
  readonly variables: Readonly<Record<string, unknown>>;
  /** Location of the history for error messages. */
  readonly location: string;
}

/** Returns the histories of an example: of a chat line, one. */
function historiesOf(example: SftExample, where: string): ExampleHistory[] {
  const variables = example.chat_template_kwargs ?? {};
  const histories = isTrajectory(example)
    ? trajectoryHistories(example)
    : [{ items: example.messages, tools: example.tools, path: "messages" }];
  return histories.map(({ items, tools, path }) => ({ items, tools, variables, location: `${where}: ${path}` }));
}

/** Whether an example is a trajectory. */
function isTrajectory(example: SftExample): example is z.infer<typeof trajectoryLine> {
  return "messages_and_choices" in example;
}

/** Result of converting one history. */
type HistorySequences = Pick<SftSequences, "sequences" | "missingBytes">;

/** Converts one history to sequences, see {@link sftSequences}. @param options - `lastOnly`: whether only its last turn is trained. */
function historySequences(
  history: ExampleHistory,
  tokenizer: ChatTokenizer,
  { lastOnly }: { readonly lastOnly: boolean },
): HistorySequences {
  const choices = history.items.filter(isChoice);
  const withTokenIds = choices.filter(hasTokenIds);
  if (withTokenIds.length === 0) return renderHistory(history, tokenizer, { lastOnly });
  if (withTokenIds.length === choices.length) return { sequences: sampledSequences(history, { lastOnly }), missingBytes: 0 };
  throw new DataError(
    `${history.location}: ${withTokenIds.length} of ${choices.length} choices have \`prompt_token_ids\` and \`token_ids\`. ` +
      "Give them to every choice, to train exactly what was sampled, or to none, to train through the chat template.",
  );
}

/** Returns the sequences of a history in which every choice has token ids. */
function sampledSequences({ items, location }: ExampleHistory, { lastOnly }: { readonly lastOnly: boolean }): readonly TokenSequence[] {
  const turns: TokenTurn[] = [];
  for (const [index, item] of items.entries()) {
    if (isChoice(item)) turns.push(readTurn(withPlaceholderLogprobs(item), `${location}.${index}`));
  }
  return mergeTurns(lastOnly ? turns.slice(-1) : turns).sequences;
}

/** Renders a history without token ids. Trains its choices or, if it has none, its assistant messages without `weight: 0`. */
function renderHistory(
  { items, tools, variables, location }: ExampleHistory,
  tokenizer: ChatTokenizer,
  { lastOnly }: { readonly lastOnly: boolean },
): HistorySequences {
  items.forEach((item, index) => requireMessageWeight(item, `${location}.${index}`));
  const hasChoices = items.some(isChoice);
  const isTrainable = (item: MessageOrChoice): boolean =>
    hasChoices ? isChoice(item) : !isChoice(item) && item.role === "assistant" && item["weight"] !== 0;
  const trainable = [...items.keys()].filter((index) => isTrainable(items[index] as MessageOrChoice));
  if (trainable.length === 0) return { sequences: [], missingBytes: 0 };
  const trained = new Set(lastOnly ? trainable.slice(-1) : trainable);
  const conversation = {
    messages: items.map(requestMessageOf),
    tools,
    variables,
    isTrained: (index: number) => trained.has(index),
    location,
  };
  const { sequence, missingBytes } = renderedSequence(conversation, tokenizer);
  return { sequences: [sequence], missingBytes };
}

/** Rejects message weights other than 0 (context) and 1 (trained), because any other weight would be trained as 1. */
function requireMessageWeight(item: MessageOrChoice, where: string): void {
  const { weight: value } = item as { readonly weight?: unknown };
  if (value === undefined || value === null || value === 0 || value === 1) return;
  throw new DataError(
    `${where}: expected the \`weight\` of a message to be 0 (context) or 1 (trained), got ${JSON.stringify(value)}. A line may have a \`weight\` of its own.`,
  );
}
