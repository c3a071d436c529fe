/** Rendering of turns without token ids through the chat template. */
import { ArgumentError, DataError } from "../base/errors.ts";
import type { AssistantChoice, LogprobEntry, MessageOrChoice, Tool } from "../base/schema/index.ts";
import type { ChatMessage, ChatTokenizer } from "../text/tokenizer/index.ts";
import { requestMessageOf } from "../base/trajectory/messages.ts";
import { TURN_PROBLEMS, turnProblem } from "../base/trajectory/turn.ts";
import { type TokenTurn, withPlaceholderLogprobs } from "./merge.ts";

/** History, and its location for error messages. */
export interface LocatedHistory {
  readonly items: readonly MessageOrChoice[];
  readonly tools?: readonly Tool[] | null | undefined;
  /** E.g. `trajectory_groups.0.trajectories.2.messages_and_choices`. */
  readonly location: string;
}

/** Turn made by {@link renderTurn}. */
export interface RenderedTurn extends TokenTurn {
  /** Whether the sampled tokens are known and the template renders the answer to different tokens. */
  readonly drifted: boolean;
  /** Bytes that the vocabulary has no token for, in the prompt and the answer; 0 for a prompt or an answer with known token ids. */
  readonly missingBytes: number;
}

/**
 * Converts a choice without `prompt_token_ids` or `token_ids` to a sampled turn. The prompt is rendered through the chat template, `tools`
 * included, unless the choice has `prompt_token_ids`. The answer's tokens are, in order of preference: the choice's `token_ids`; the tokens
 * of its log-probabilities (`token_id:<n>`, or the token with the same bytes); the rendered answer, without the closing token if the answer
 * was truncated by its length.
 *
 * @param index - Index of the choice in the history.
 * @param options - `allowsUnknownLogprobs`: whether the choice may lack log-probabilities, which are then NaN.
 * @throws ArgumentError `E_ARGUMENT` for a choice without log-probabilities, unless allowed.
 * @throws DataError `E_DATA` for a token outside the vocabulary, log-probabilities that do not match the tokens, and a conversation that
 *   the template cannot render turn by turn.
 */
export function renderTurn(
  { items, tools, location }: LocatedHistory,
  index: number,
  { tokenizer, allowsUnknownLogprobs }: { readonly tokenizer: ChatTokenizer; readonly allowsUnknownLogprobs: boolean },
): RenderedTurn {
  const where = `${location}.${index}`;
  const choice = items[index] as AssistantChoice;
  const entries = choice.logprobs?.content ?? [];
  if (entries.length === 0 && !allowsUnknownLogprobs) {
    throw new ArgumentError(`${where}: ${TURN_PROBLEMS["choice-without-logprobs"]}`, { param: where });
  }
  const { prompt, answer, missing } = render(items.slice(0, index + 1), tools, { tokenizer, where });
  const renderedIds = choice.finish_reason === "length" ? withoutClosing(answer, tokenizer) : answer;
  const knownIds = choice.token_ids ?? (entries.length > 0 ? entries.map((entry) => idOf(entry, tokenizer, where)) : null);
  const sampledIds = knownIds ?? renderedIds;
  const turn = { ...choice, prompt_token_ids: prompt, token_ids: [...sampledIds] };
  const problem = turnProblem(entries.length > 0 ? turn : withPlaceholderLogprobs(turn));
  if (problem !== null) throw new DataError(`${where}: ${TURN_PROBLEMS[problem]}`, { param: where });
  return {
    prompt: choice.prompt_token_ids ?? prompt,
    sampled: sampledIds,
    logprobs: entries.length > 0 ? entries.map((entry) => entry.logprob) : sampledIds.map(() => Number.NaN),
    missingBytes: (Array.isArray(choice.prompt_token_ids) ? 0 : missing.prompt) + (knownIds === null ? missing.answer : 0),
    drifted: knownIds !== null && !isSame(knownIds, renderedIds),
  };
}

/** Whether two lists have the same token ids. */
function isSame(a: readonly number[], b: readonly number[]): boolean {
  return a.length === b.length && a.every((id, position) => id === b[position]);
}

/** Returns the tokens of a rendered answer without the token that ends a turn, which the template adds to every answer. */
function withoutClosing(answer: readonly number[], { eosTokenIds }: ChatTokenizer): readonly number[] {
  const closing = answer.at(-1);
  return closing !== undefined && eosTokenIds.includes(closing) ? answer.slice(0, -1) : answer;
}

/** Renders a history whose last item is the choice: the tokens before the choice, the choice's tokens, and the missing bytes of both. */
function render(
  items: readonly MessageOrChoice[],
  tools: readonly Tool[] | null | undefined,
  { tokenizer, where }: { readonly tokenizer: ChatTokenizer; readonly where: string },
): { readonly prompt: number[]; readonly answer: number[]; readonly missing: Readonly<Record<"prompt" | "answer", number>> } {
  try {
    const messages = items.map((item) => requestMessageOf(item) as ChatMessage);
    const { ids, mask, missingBytes, missingTrainedBytes } = tokenizer.renderTraining(messages, {
      tools,
      isTrained: (position) => position === items.length - 1,
    });
    const start = mask.indexOf(1);
    return {
      prompt: [...ids.subarray(0, start)],
      answer: [...ids.subarray(start)],
      missing: { prompt: missingBytes - missingTrainedBytes, answer: missingTrainedBytes },
    };
  } catch (error) {
    if (error instanceof DataError) throw new DataError(`${where}: ${error.message}`, { cause: error, param: where });
    throw error;
  }
}

/** Token of a log-probability entry that is named by its id instead of its text, e.g. `token_id:42`. */
const TOKEN_ID_NAME = /^token_id:(\d+)$/u;
/** Token ids by {@link keyOf} of their bytes, computed once per tokenizer. */
const vocabularies = new WeakMap<ChatTokenizer, ReadonlyMap<string, number>>();

/** Returns the token id of a log-probability entry, from its name or else from its bytes. */
function idOf({ token, bytes }: LogprobEntry, tokenizer: ChatTokenizer, where: string): number {
  const byName = TOKEN_ID_NAME.exec(token);
  if (byName !== null) return Number(byName[1]);
  const byBytes = vocabularyOf(tokenizer).get(keyOf(bytes ?? Buffer.from(token)));
  if (byBytes !== undefined) return byBytes;
  throw new DataError(
    `${where}: the token ${JSON.stringify(token)} of its log-probabilities is not in the model's vocabulary. Request \`return_token_ids: true\` while sampling, and append the whole choice.`,
    { param: where },
  );
}

/**
 * Maps token bytes to ids. If several tokens have the same bytes, the first counts; byte-fallback tokens count only if there is no other.
 */
function vocabularyOf(tokenizer: ChatTokenizer): ReadonlyMap<string, number> {
  const cachedIds = vocabularies.get(tokenizer);
  if (cachedIds !== undefined) return cachedIds;
  const ids = new Map<string, number>();
  for (let id = 0; id < tokenizer.vocabularySize; id++) {
    const key = keyOf(tokenizer.tokenBytes(id));
    const earlierId = ids.get(key);
    const isBetter = earlierId === undefined || (tokenizer.byteTokenIds.has(earlierId) && !tokenizer.byteTokenIds.has(id));
    if (key !== "" && isBetter) ids.set(key, id);
  }
  vocabularies.set(tokenizer, ids);
  return ids;
}

/** Returns bytes as a map key with one character per byte. */
function keyOf(bytes: ArrayLike<number>): string {
  return Buffer.from(Array.from(bytes)).toString("latin1");
}
