/**
 * Rendering of messages to prompt ids: the chat template, then the encoder.
 *
 * A client sends the conversation back with each request. Encoding the text of an assistant turn again may give other ids than were sampled,
 * which would be off-policy data for training. Therefore `rememberTurn` stores the ids of prompt and turn under the text that a later request
 * is expected to render, and `renderPrompt` uses them for the beginning of a prompt and encodes only the text after it (splicing).
 */
import { ArgumentError } from "../../../base/errors.ts";
import { getOrInsert } from "../../../base/util/values.ts";
import type { ChatMessage, ChatTokenizer, EncodeOptions } from "../../../text/tokenizer/index.ts";
import type { PromptRequest } from "../request/prompt-request.ts";
import type { RecentPrompts } from "./recent-prompts.ts";
import type { SampledIds } from "./sampled-ids.ts";

/** A prompt as text and as tokens. */
export interface RenderedPrompt {
  readonly text: string;
  /** Shape `[P]`, P ≥ 1. */
  readonly ids: Int32Array;
  /** Whether `ids` encode exactly `text`; false after truncation, and for a raw text, whose ids may include special tokens. */
  readonly isWhole: boolean;
}

/** Location of remembered ids: the memory of one principal, and the scope within it. */
export interface SplicePoint {
  readonly memory: SampledIds;
  /** Conversation and model, without the model's step: a turn sampled at step 3 is reused at step 4. */
  readonly scope: string;
}

/** Context of {@link renderPrompt}. */
export interface RenderContext {
  /** Cache for conversations without an assistant turn. */
  readonly recent: RecentPrompts;
  /** Namespace of the caller among the recent prompts. */
  readonly namespace: string | null;
  readonly splice: SplicePoint;
  readonly encoder: PromptEncoder;
}

/** Renderer and encoder for the conversations of one model. */
export interface PromptEncoder {
  readonly tokenizer: ChatTokenizer;
  /** Directory of the model, which identifies its tokenizer. */
  readonly directory: string;
  /** Number of ids that {@link encode} returns from the end of a text, at most; null for all. */
  readonly tail: number | null;
  /** Renders a conversation with its chat template. */
  readonly render: (request: PromptRequest) => Promise<string>;
  /** Encodes a text. @throws ArgumentError `E_ARGUMENT` for a text that must have more tokens than the context. */
  readonly encode: (text: string, request: PromptRequest, follows?: EncodeOptions["follows"]) => Promise<Int32Array>;
}

/** Results of {@link terminatorsOf}. */
const terminatorCache = new WeakMap<ChatTokenizer, readonly string[]>();

/** Returns the texts of the tokens that end a turn. */
export function terminatorsOf(tokenizer: ChatTokenizer): readonly string[] {
  return getOrInsert(terminatorCache, tokenizer, () =>
    tokenizer.eosTokenIds.map((id) => tokenizer.tokenText(id)).filter((text) => text !== ""),
  );
}

/** Returns `prefix` followed by `suffix`. */
function concatenate(prefix: Int32Array, suffix: ArrayLike<number>): Int32Array {
  const ids = new Int32Array(prefix.length + suffix.length);
  ids.set(prefix);
  ids.set(suffix, prefix.length);
  return ids;
}

/**
 * Renders and encodes the prompt of a request.
 *
 * An assistant turn that was sampled here, under the same key and model and after the same beginning, gets exactly the sampled ids; the
 * text after it is encoded. The prompt of a turn therefore starts with the previous turn's prompt and completion.
 *
 * @throws ArgumentError `E_ARGUMENT` if the template rejects the conversation or renders an empty text, and for a text that must have more
 *   tokens than the context.
 */
export async function renderPrompt(request: PromptRequest, { recent, namespace, splice, encoder }: RenderContext): Promise<RenderedPrompt> {
  const hasAssistantTurn = request.messages.some((message) => message.role === "assistant");
  // Remembered ids include no tokens of a post-processor.
  const mayBeRemembered = splice.memory.size > 0 && !request.addsSpecialTokens && hasAssistantTurn;
  // A conversation with an assistant turn is usually sent once; a first turn is sent by every request of a group, so it is cached.
  if (!mayBeRemembered) {
    const { text, ids } = await recent.render(encoder, request, namespace);
    return { text, ids: notEmpty(ids.slice()), isWhole: true };
  }
  // Encodes only the text after the longest remembered beginning.
  const text = await encoder.render(request);
  const remembered = splice.memory.find(splice.scope, text, terminatorsOf(encoder.tokenizer));
  if (remembered === null) return { text, ids: notEmpty(await encoder.encode(text, request)), isWhole: true };
  // Remembered ids end with a token of their turn, so that the text after them follows a token.
  const suffixIds = await encoder.encode(text.slice(remembered.length), request, "token");
  return { text, ids: notEmpty(concatenate(remembered.ids, suffixIds)), isWhole: true };
}

/** Returns the ids. @throws ArgumentError `E_ARGUMENT` for an empty prompt. */
function notEmpty(ids: Int32Array): Int32Array {
  if (ids.length === 0)
    throw new ArgumentError("The chat template rendered these messages to an empty prompt; send at least one message with text", {
      param: "messages",
    });
  return ids;
}

/** Data of a finished choice that is remembered. */
export interface FinishedTurn {
  /** Sampled text as the client received it. */
  readonly text: string;
  /** All sampled ids, including the closing one. */
  readonly ids: readonly number[];
  /** End token that closed the turn; null if the turn ended for another reason. */
  readonly closedBy: number | null;
  /**
   * Messages as which the turn may be sent back, if the template renders them differently from `text`: with tool calls, or with reasoning.
   * Messages that follow are listed if the template may render the turn differently before them. Empty if the turn is sent back as `text`.
   */
  readonly rewritten: readonly (readonly [ChatMessage, ...ChatMessage[]])[];
}

/**
 * Remembers the ids of prompt and turn under every text as which a later request may contain them. Does nothing for a prompt that no later
 * request renders.
 *
 * @throws Any error of the template, which may reject a message of the model.
 */
export async function rememberTurn(
  encoder: PromptEncoder,
  request: PromptRequest,
  prompt: RenderedPrompt,
  turn: FinishedTurn,
  splice: SplicePoint,
): Promise<void> {
  const { tokenizer } = encoder;
  // Later requests render with the model's own template, so a prompt that was truncated or rendered otherwise cannot match.
  if (!prompt.isWhole || request.addsSpecialTokens || request.template !== null) return;
  const entry = { ids: concatenate(prompt.ids, turn.ids), isClosed: turn.closedBy !== null };
  const remember = (turnText: string) => splice.memory.remember(splice.scope, prompt.text + turnText, entry);
  // The template closes a turn that was cut short with any one of the end tokens.
  const terminators = turn.closedBy === null ? terminatorsOf(tokenizer) : [tokenizer.tokenText(turn.closedBy)];
  if (turn.rewritten.length === 0) {
    for (const terminator of terminators) remember(turn.text + terminator);
    return;
  }
  for (const messages of turn.rewritten) {
    const rendered = await encoder.render({
      ...request,
      messages: [...request.messages, ...messages],
      addGenerationPrompt: false,
      continuesFinalMessage: false,
    });
    // The template has changed an earlier message, so that no later request begins with the prompt.
    if (!rendered.startsWith(prompt.text)) continue;
    for (const turnText of turnTextsOf(rendered.slice(prompt.text.length), messages.length, terminators)) remember(turnText);
  }
}

/**
 * Returns the texts as which a turn may be rendered in a later request, each up to and including a terminator. Empty if the end of the turn
 * is not found.
 *
 * @param text - Rendered text of the turn and of the messages after it.
 * @param messageCount - Number of these messages, the turn included.
 * @param terminators - Texts that may end the turn.
 */
function turnTextsOf(text: string, messageCount: number, terminators: readonly string[]): string[] {
  const terminator = terminators.find((each) => text.includes(each));
  if (terminator === undefined) {
    // The template ends a turn with the header of the next message, which begins with one of the terminators.
    return messageCount === 1 ? terminators.map((each) => text + each) : [];
  }
  if (messageCount === 1) return [text.slice(0, text.lastIndexOf(terminator) + terminator.length)];
  // Each message has one terminator, so that splitting gives one more text than messages. Another number means that a message spells the
  // terminator, and the end of the turn is unknown.
  const texts = text.split(terminator);
  const [turnText = ""] = texts;
  return texts.length === messageCount + 1 ? [turnText + terminator] : [];
}
