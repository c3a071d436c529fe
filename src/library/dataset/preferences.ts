/** Preference pairs: made of trajectory groups, and read from and written to JSON Lines files. */
import { isDeepStrictEqual } from "node:util";
import { DataError } from "../../base/errors.ts";
import { jsonObject } from "../../base/schema/common.ts";
import type { History, RequestMessage } from "../../base/schema/index.ts";
import type { Trajectory, TrajectoryGroup } from "../../base/trajectory/index.ts";
import {
  isTrainedMessage,
  preferenceLine,
  readPreferencePair,
  type PreferenceLine,
  type PreferencePair,
} from "../../base/trajectory/preference-pair.ts";
import { refuse } from "../../base/util/values.ts";
import { checkedGroup } from "./best-of.ts";
import { trainingMessages } from "./chat.ts";
import { readJsonLines, writeJsonLines, type ReadOptions, type WriteOptions, type WrittenFile } from "./jsonl.ts";
import { messagesText } from "./keys.ts";
import { expandPaths, type Patterns } from "./paths.ts";
import { checkOptionCount, checkedSource } from "./source.ts";

/** Preference pairs in memory, from files or from a stream. */
export type PreferencePairs = Iterable<PreferencePair> | AsyncIterable<PreferencePair>;

/** Options of {@link preferencePairs}. */
export interface PreferencePairsOptions {
  /** Minimum difference of the rewards of a pair, at least 0; equal rewards never form a pair. @default 0 */
  readonly minMargin?: number | undefined;
  /** Maximum number of pairs of a group, the largest differences of rewards first. `Infinity` = all pairs. @default 1, the best against the worst */
  readonly pairsPerGroup?: number | undefined;
  /**
   * Trained turns of a continuation: all after the common prompt, or only the last one. Earlier turns are then context (`weight: 0`).
   *
   * @default "all"
   */
  readonly turns?: "all" | "last" | undefined;
}

/**
 * Makes preference pairs of the trajectories in groups: a trajectory with a higher reward is preferred to one with a lower reward.
 *
 * The prompt of a pair is the common beginning of both conversations, compared without the ids of tool calls; the continuations are the
 * messages after it, up to the last assistant message. Two trajectories form a pair only if both continuations begin with an assistant message
 * and have a trained one, and if the trajectories have the same tools. Failed rollouts (`exceptions`) and additional histories are not used. Token ids and
 * log-probabilities are dropped: the service renders the messages through the model's chat template. Memory: one group at a time.
 *
 * @param groups - Groups in memory, from `readTrajectoryGroups` or from a stream. A generator can be read only once.
 * @param options - Minimum difference, number of pairs per group, and trained turns.
 * @returns The pairs, in the order of the groups. Iterating throws ArgumentError `E_ARGUMENT` for an item that is not a group, and
 *   ConflictError `E_CONFLICT` for a second iteration over a generator.
 * @throws ArgumentError `E_ARGUMENT` for an option outside its bounds.
 * @example
 * ```ts
 * import { preferencePairs, readTrajectoryGroups, uploadPreferences } from "whetstone/dataset";
 *
 * const pairs = preferencePairs(readTrajectoryGroups("runs/*\/trajectories/train/*.jsonl"), { minMargin: 0.5, pairsPerGroup: 4 });
 * const job = await model.trainPreferences(await uploadPreferences(service, { name: "pairs", train: pairs }));
 * ```
 */
export function preferencePairs(
  groups: Iterable<TrajectoryGroup> | AsyncIterable<TrajectoryGroup>,
  { minMargin = 0, pairsPerGroup = 1, turns = "all" }: PreferencePairsOptions = {},
): AsyncIterable<PreferencePair> {
  if (!(Number.isFinite(minMargin) && minMargin >= 0)) refuse("minMargin", "a finite number of at least 0", minMargin);
  if (pairsPerGroup !== Infinity) checkOptionCount(pairsPerGroup, { param: "pairsPerGroup", min: 1 });
  if (turns !== "all" && turns !== "last") refuse("turns", '"all" or "last"', turns);
  const source = checkedSource(groups, checkedGroup);
  return {
    async *[Symbol.asyncIterator]() {
      for await (const group of source) {
        let remaining = pairsPerGroup;
        for (const [better, worse] of rankedPairs(group, minMargin)) {
          if (remaining === 0) break;
          const pair = pairOf(better, worse, turns);
          if (pair === null) continue;
          remaining--;
          yield pair;
        }
      }
    },
  };
}

/**
 * Reads preference pairs from JSON Lines files, lazily. A line has the format of OpenAI, `{input: {messages, tools?, parallel_tool_calls?},
 * preferred_output, non_preferred_output}`, or of TRL, `{prompt?, chosen, rejected, tools?}` with lists of messages. Other keys are dropped.
 *
 * @param patterns - Paths or globs, as for `readTrajectories`.
 * @param options - Handling of a torn last line, and a signal.
 * @returns The pairs in file order; each iteration reads the files again. Iterating throws DataError `E_DATA` with file, line and field, or for
 *   a pattern that matches nothing; or the signal's reason.
 * @example
 * ```ts
 * for await (const { prompt, chosen } of readPreferences("pairs.jsonl")) console.log(prompt.length, chosen[0]?.content);
 * ```
 */
export function readPreferences(patterns: Patterns, options: ReadOptions = {}): AsyncIterable<PreferencePair> {
  return {
    async *[Symbol.asyncIterator]() {
      for (const path of await expandPaths(patterns)) {
        for await (const { line, value } of readJsonLines(path, options)) {
          const { names: _, ...pair } = readPreferencePair(value, `${path}:${line}`);
          yield pair;
        }
      }
    },
  };
}

/**
 * Writes preference pairs in OpenAI's format, one per line. Atomic: a failed call leaves `path` unchanged.
 *
 * @param path - File to write; compressed if the name ends in `.gz`.
 * @param pairs - Pairs, in order.
 * @param options - Signal.
 * @returns Path, number of lines, size and SHA-256 of the file.
 * @throws DataError `E_DATA` for an invalid pair, with its number.
 * @throws the signal's reason.
 * @example
 * ```ts
 * const prompt = [{ role: "user", content: "Reverse: abc" }];
 * const answer = (content: string) => [{ role: "assistant", content }];
 * await writePreferences("pairs.jsonl", [{ prompt, chosen: answer("cba"), rejected: answer("abc") }]);
 * ```
 */
export function writePreferences(path: string, pairs: PreferencePairs, options: WriteOptions = {}): Promise<WrittenFile> {
  return writeJsonLines(path, preferenceLines(pairs), options);
}

/** Yields validated lines. @throws DataError `E_DATA` for an invalid pair, with its number. */
export async function* preferenceLines(pairs: PreferencePairs): AsyncGenerator<PreferenceLine> {
  let index = 0;
  for await (const pair of pairs) {
    index++;
    yield preferenceLine(checkedPair(pair, `Pair ${index}`));
  }
}

/** Validates a pair and returns it as the schemas parse it. */
function checkedPair(pair: PreferencePair, where: string): PreferencePair {
  const { prompt, chosen, rejected, tools, parallelToolCalls, chatTemplateKwargs } = pair;
  if (!Array.isArray(prompt)) throw new DataError(`${where}: expected \`prompt\` to be a list of messages`);
  if (parallelToolCalls !== undefined && typeof parallelToolCalls !== "boolean")
    throw new DataError(`${where}: expected \`parallelToolCalls\` to be true or false, got ${JSON.stringify(parallelToolCalls)}`);
  const line = { prompt, chosen, rejected, tools, chat_template_kwargs: chatTemplateKwargs };
  const { names: _, ...parsed } = readPreferencePair(line, where);
  return { ...parsed, ...(parallelToolCalls === undefined ? {} : { parallelToolCalls }) };
}

/** Returns all pairs of a better and a worse trajectory, the largest differences of rewards first. */
function rankedPairs({ trajectories }: TrajectoryGroup, minMargin: number): (readonly [Trajectory, Trajectory])[] {
  const isPair = (better: Trajectory, worse: Trajectory) => better.reward > worse.reward && better.reward - worse.reward >= minMargin;
  const pairs = trajectories.flatMap((better) =>
    trajectories.filter((worse) => isPair(better, worse)).map((worse) => [better, worse] as const),
  );
  const marginOf = ([better, worse]: readonly [Trajectory, Trajectory]) => better.reward - worse.reward;
  // The sort is stable: pairs with equal differences keep the order of the trajectories.
  return pairs.toSorted((a, b) => marginOf(b) - marginOf(a));
}

/** Returns the pair of two trajectories; null if they have no common prompt with two continuations to train. */
function pairOf(better: Trajectory, worse: Trajectory, turns: "all" | "last"): PreferencePair | null {
  const chosen = conversationOf(better);
  const rejected = conversationOf(worse);
  if (!isDeepStrictEqual(chosen.settings, rejected.settings)) return null;
  const promptLength = commonLength(chosen.messages, rejected.messages);
  const chosenContinuation = continuationOf(chosen.messages.slice(promptLength), turns);
  const rejectedContinuation = continuationOf(rejected.messages.slice(promptLength), turns);
  if (promptLength === 0 || chosenContinuation === null || rejectedContinuation === null) return null;
  const prompt = chosen.messages.slice(0, promptLength);
  return { prompt, chosen: chosenContinuation, rejected: rejectedContinuation, ...chosen.settings };
}

/** Returns the messages of the main history, and the settings that both trajectories of a pair must share. */
function conversationOf(trajectory: Trajectory): {
  readonly messages: readonly RequestMessage[];
  readonly settings: Pick<PreferencePair, "tools" | "parallelToolCalls" | "chatTemplateKwargs">;
} {
  const wire = trajectory.toJSON();
  const history: History = wire;
  const { parallel_tool_calls: parallel } = wire;
  const { data: variables } = jsonObject.safeParse(wire["chat_template_kwargs"]);
  return {
    messages: trainingMessages(history),
    settings: {
      ...((history.tools ?? []).length === 0 ? {} : { tools: history.tools! }),
      ...(typeof parallel === "boolean" ? { parallelToolCalls: parallel } : {}),
      ...(variables === undefined ? {} : { chatTemplateKwargs: variables }),
    },
  };
}

/** Returns the number of messages at the beginning that two conversations have in common. */
function commonLength(a: readonly RequestMessage[], b: readonly RequestMessage[]): number {
  const texts = b.map((message) => messagesText([message]));
  const firstDifference = a.findIndex((message, index) => messagesText([message]) !== texts[index]);
  return firstDifference === -1 ? a.length : firstDifference;
}

/** Returns the messages up to the last trained one; null if they do not begin with an assistant message, or none is trained. */
function continuationOf(messages: readonly RequestMessage[], turns: "all" | "last"): RequestMessage[] | null {
  const lastTrained = messages.findLastIndex(isTrainedMessage);
  if (messages[0]?.role !== "assistant" || lastTrained === -1) return null;
  const continuation = messages.slice(0, lastTrained + 1);
  if (turns === "all") return continuation;
  return continuation.map((message, index) => (index < lastTrained && isTrainedMessage(message) ? { ...message, weight: 0 } : message));
}
