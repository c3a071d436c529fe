import type { PromptRequest } from "./prompt-request.ts";
import type { PromptEncoder } from "./render.ts";
import { isLongText } from "../work/size.ts";

/** A conversation as its template renders it, and that text as the encoder has it. */
interface EncodedPrompt {
  readonly text: string;
  /** Shape `[P]`; shared, not to be modified or transferred. */
  readonly ids: Int32Array;
}

/** Templates may print the time of day, so that what they said is soon out of date. */
const LIFETIME_MS = 1000;
const MAX_ENTRIES = 256;
/** Longer conversations are hardly ever sent twice. */
const MAX_KEY_LENGTH = 16_384;

async function encoded(encoder: PromptEncoder, request: PromptRequest): Promise<EncodedPrompt> {
  const text = await encoder.render(request);
  return { text, ids: await encoder.encode(text, request) };
}

/**
 * Renders and encodes conversations, once for several requests with the same one: the rollouts of a group arrive together and
 * differ in their seed alone, and a template costs more than all the rest of a short request.
 */
export class RecentPrompts {
  readonly #entries = new Map<string, EncodedPrompt & { readonly madeAtMs: number }>();
  readonly #now: () => number;

  /** @param now - Milliseconds from any fixed moment. @default `performance.now` */
  constructor(now: () => number = () => performance.now()) {
    this.#now = now;
  }

  /** @throws the error of the template or the encoder; nothing is kept then. */
  async render(encoder: PromptEncoder, request: PromptRequest): Promise<EncodedPrompt> {
    if (isLongText(request, MAX_KEY_LENGTH)) return encoded(encoder, request);
    const { messages, tools, addGenerationPrompt, continuesFinalMessage, addsSpecialTokens, variables, template } = request;
    const key = JSON.stringify([
      encoder.directory,
      messages,
      tools,
      addGenerationPrompt,
      continuesFinalMessage,
      addsSpecialTokens,
      variables,
      template,
    ]);
    const known = this.#entries.get(key);
    if (known !== undefined && this.#now() - known.madeAtMs < LIFETIME_MS) return known;
    const entry = { ...(await encoded(encoder, request)), madeAtMs: this.#now() };
    this.#entries.delete(key);
    if (key.length <= MAX_KEY_LENGTH) this.#entries.set(key, entry);
    if (this.#entries.size > MAX_ENTRIES) this.#entries.delete(this.#entries.keys().next().value!);
    return entry;
  }
}
