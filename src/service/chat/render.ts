/** From messages to prompt ids: the chat template, then the encoder, with remembered ids for what was sampled here before. */
import { ArgumentError } from "../../errors.ts";
import type { ChatMessage, ChatTokenizer, EncodeOptions } from "../../tokenizer/index.ts";
import type { PromptRequest } from "./prompt-request.ts";
import type { RecentPrompts } from "./recent-prompts.ts";
import type { SampledIds } from "./sampled-ids.ts";

/** A prompt as text and as tokens. */
export interface RenderedPrompt {
  readonly text: string;
  /** Shape `[P]`, P ≥ 1. */
  readonly ids: Int32Array;
  /** Whether `ids` stand for all of `text`; false after truncation. */
  readonly isWhole: boolean;
}

/** Where sampled ids are remembered: one key's memory and the model within it. */
export interface SplicePlace {
  readonly memory: SampledIds;
  /** The model without its step: a turn sampled at step 3 is spliced at step 4. */
  readonly scope: string;
}

/** Context of {@link renderPrompt}. */
export interface RenderContext {
  readonly recent: RecentPrompts;
  readonly place: SplicePlace;
  readonly encoder: PromptEncoder;
}

/** Renders and encodes the conversations of one model. */
export interface PromptEncoder {
  readonly tokenizer: ChatTokenizer;
  /** The model's directory, which stands for its tokenizer. */
  readonly directory: string;
  readonly render: (request: PromptRequest) => Promise<string>;
  /** Tokens of a text. @throws ArgumentError `E_ARGUMENT` for a text that surely has more tokens than the context. */
  readonly encode: (text: string, request: PromptRequest, follows?: EncodeOptions["follows"]) => Promise<Int32Array>;
}

const terminatorCache = new WeakMap<ChatTokenizer, readonly string[]>();

/** Texts of the tokens that end a turn. */
export function terminatorsOf(tokenizer: ChatTokenizer): readonly string[] {
  let texts = terminatorCache.get(tokenizer);
  if (texts === undefined)
    terminatorCache.set(tokenizer, (texts = tokenizer.eosTokenIds.map((id) => tokenizer.tokenText(id)).filter((text) => text !== "")));
  return texts;
}

/** `a` followed by `b`. */
function joined(a: Int32Array, b: ArrayLike<number>): Int32Array {
  const ids = new Int32Array(a.length + b.length);
  ids.set(a);
  ids.set(b, a.length);
  return ids;
}

/**
 * The prompt of a request.
 *
 * An assistant turn that was sampled here, under the same key and model and after the same beginning, gets exactly the ids
 * that were sampled; the rest is encoded. So one turn's prompt starts with the previous turn's prompt and completion.
 *
 * @throws ArgumentError `E_ARGUMENT` when the template refuses the conversation or renders nothing, and for a text that surely has
 *   more tokens than the context.
 */
export async function renderPrompt(request: PromptRequest, { recent, place, encoder }: RenderContext): Promise<RenderedPrompt> {
  // Remembered ids have no tokens of a post-processor among them.
  const mayBeKnown =
    place.memory.size > 0 && !request.addsSpecialTokens && request.messages.some((message) => message.role === "assistant");
  // A conversation under way is sent once; only its beginning, without an answer yet, is sent by a whole group.
  if (!mayBeKnown) {
    const { text, ids } = await recent.render(encoder, request);
    return { text, ids: notEmpty(ids.slice()), isWhole: true };
  }
  const text = await encoder.render(request);
  const known = place.memory.find(place.scope, text, terminatorsOf(encoder.tokenizer));
  // What is remembered ends with the token that closed its turn.
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

/** One finished choice, as far as the memory is concerned. */
export interface SampledTurn {
  /** The sampled text as the client got it. */
  readonly text: string;
  /** Every sampled id, the closing one included. */
  readonly ids: readonly number[];
  /** The end token that closed the turn; null when anything else did. */
  readonly closedBy: number | null;
  /**
   * The messages as which the turn may come back, when the template renders something else for them than `text`: with tool calls,
   * or with reasoning. Empty when it comes back as `text`.
   */
  readonly rewritten: readonly ChatMessage[];
}

/** Remembers the ids of a turn for the day its message comes back. */
export async function rememberTurn(
  encoder: PromptEncoder,
  request: PromptRequest,
  prompt: RenderedPrompt,
  turn: SampledTurn,
  place: SplicePlace,
): Promise<void> {
  const { tokenizer } = encoder;
  // What a client sends back is a conversation by the model's own template, none that was cut or begun differently.
  if (!prompt.isWhole || request.addsSpecialTokens || request.template !== null) return;
  const terminators = terminatorsOf(tokenizer);
  const closing = turn.closedBy === null ? null : tokenizer.tokenText(turn.closedBy);
  const entry = { ids: joined(prompt.ids, turn.ids), isClosed: closing !== null };
  if (turn.rewritten.length === 0) {
    // A turn that nothing closed will be closed by the template, with whichever of the tokens it uses.
    for (const terminator of closing === null ? terminators : [closing])
      place.memory.remember(place.scope, prompt.text + turn.text + terminator, entry);
    return;
  }
  for (const message of turn.rewritten) {
    const rendered = await encoder.render({
      ...request,
      messages: [...request.messages, message],
      addGenerationPrompt: false,
      continuesFinalMessage: false,
    });
    const terminator = closing ?? terminators.find((text) => rendered.includes(text, prompt.text.length));
    const end = terminator === undefined ? -1 : rendered.lastIndexOf(terminator);
    if (terminator === undefined || end < prompt.text.length || !rendered.startsWith(prompt.text)) continue;
    place.memory.remember(place.scope, rendered.slice(0, end + terminator.length), entry);
  }
}
