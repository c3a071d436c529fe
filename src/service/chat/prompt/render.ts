/** Rendering of messages to prompt ids: the chat template, then the encoder, with remembered ids for turns that were sampled here. */
import { ArgumentError } from "../../../base/errors.ts";
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

/** Location of remembered ids: the memory of one API key and the model within it. */
export interface SplicePoint {
  readonly memory: SampledIds;
  /** Model without its step: a turn sampled at step 3 is reused at step 4. */
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
  let texts = terminatorCache.get(tokenizer);
  if (texts === undefined)
    terminatorCache.set(tokenizer, (texts = tokenizer.eosTokenIds.map((id) => tokenizer.tokenText(id)).filter((text) => text !== "")));
  return texts;
}

/** Returns `a` followed by `b`. */
function joined(a: Int32Array, b: ArrayLike<number>): Int32Array {
  const ids = new Int32Array(a.length + b.length);
  ids.set(a);
  ids.set(b, a.length);
  return ids;
}

/**
 * Renders and encodes the prompt of a request.
 *
 * An assistant turn that was sampled here, under the same key and model and after the same beginning, gets exactly the sampled ids; the
 * rest is encoded. The prompt of a turn therefore starts with the previous turn's prompt and completion.
 *
 * @throws ArgumentError `E_ARGUMENT` if the template rejects the conversation or renders an empty text, and for a text that must have more
 *   tokens than the context.
 */
export async function renderPrompt(request: PromptRequest, { recent, namespace, splice, encoder }: RenderContext): Promise<RenderedPrompt> {
  // Remembered ids include no tokens of a post-processor.
  const mayBeKnown =
    splice.memory.size > 0 && !request.addsSpecialTokens && request.messages.some((message) => message.role === "assistant");
  // A conversation with an assistant turn is usually sent once; a first turn is sent by every request of a group, so it is cached.
  if (!mayBeKnown) {
    const { text, ids } = await recent.render(encoder, request, namespace);
    return { text, ids: notEmpty(ids.slice()), isWhole: true };
  }
  const text = await encoder.render(request);
  const known = splice.memory.find(splice.scope, text, terminatorsOf(encoder.tokenizer));
  // Remembered ids end with the token that closed their turn.
  const rest = await (known === null ? encoder.encode(text, request) : encoder.encode(text.slice(known.length), request, "token"));
  return { text, ids: notEmpty(known === null ? rest : joined(known.ids, rest)), isWhole: true };
}

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

/** Remembers the ids of a turn, for a later request that contains its message. */
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
  const terminators = terminatorsOf(tokenizer);
  const closing = turn.closedBy === null ? null : tokenizer.tokenText(turn.closedBy);
  const entry = { ids: joined(prompt.ids, turn.ids), isClosed: closing !== null };
  if (turn.rewritten.length === 0) {
    // The template will close a turn that was cut short with any one of the end tokens.
    for (const terminator of closing === null ? terminators : [closing])
      splice.memory.remember(splice.scope, prompt.text + turn.text + terminator, entry);
    return;
  }
  for (const messages of turn.rewritten) {
    const rendered = await encoder.render({
      ...request,
      messages: [...request.messages, ...messages],
      addGenerationPrompt: false,
      continuesFinalMessage: false,
    });
    if (!rendered.startsWith(prompt.text)) continue;
    for (const tail of endingsOf(rendered.slice(prompt.text.length), closing === null ? terminators : [closing], messages.length))
      splice.memory.remember(splice.scope, prompt.text + tail, entry);
  }
}

/**
 * Returns the texts as which a turn may be rendered in a later request, each up to and including a terminator.
 *
 * @param tail - Rendered text of the turn and of the messages after it.
 * @param count - Number of messages in `tail`, the turn included.
 * @param terminators - Texts that may end the turn.
 */
function endingsOf(tail: string, terminators: readonly string[], count: number): string[] {
  const terminator = terminators.find((text) => tail.includes(text));
  // Templates without an end of messages end a turn with the header of the next message.
  if (terminator === undefined) return count === 1 ? terminators.map((text) => tail + text) : [];
  if (count === 1) return [tail.slice(0, tail.lastIndexOf(terminator) + terminator.length)];
  const [turn = "", ...rest] = tail.split(terminator);
  // A text may spell the terminator; the end of the turn is then unknown.
  return rest.length === count ? [turn + terminator] : [];
}
