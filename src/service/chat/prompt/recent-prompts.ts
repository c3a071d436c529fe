/** Cache of the prompts of the last second, for requests that differ only in their sampling. */
import { Lru } from "../../../base/util/lru.ts";
import type { PromptRequest } from "../request/prompt-request.ts";
import type { PromptEncoder } from "./render.ts";
import { isLongText } from "../request/size.ts";

/** A conversation rendered by its template, and the encoded text. */
interface EncodedPrompt {
  readonly text: string;
  /** Shape `[P]`; shared, not to be modified or transferred. */
  readonly ids: Int32Array;
}

/** Lifetime of an entry; short, because templates may render the time of day. */
const LIFETIME_MS = 1000;
const MAX_ENTRIES = 256;
/** Maximum length of a cached conversation, in UTF-16 units; longer ones are rarely sent twice. */
const MAX_KEY_LENGTH = 16_384;

/** Renders and encodes a conversation. */
async function renderAndEncode(encoder: PromptEncoder, request: PromptRequest): Promise<EncodedPrompt> {
  const text = await encoder.render(request);
  return { text, ids: await encoder.encode(text, request) };
}

/**
 * Cache of rendered and encoded conversations. The rollouts of a group arrive together and differ only in their seed, and rendering the
 * template is the largest cost of a short request.
 */
export class RecentPrompts {
  readonly #entries = new Lru<string, EncodedPrompt & { readonly madeAtMs: number }>({ maxEntries: MAX_ENTRIES });
  readonly #now: () => number;

  /** @param now - Milliseconds since any fixed point in time. @default `performance.now` */
  constructor(now: () => number = () => performance.now()) {
    this.#now = now;
  }

  /**
   * Returns the rendered and encoded conversation, from the cache if possible.
   *
   * @param namespace - Namespace of the caller, which finds only conversations of the same namespace; null for the default one.
   * @throws any error of the template or the encoder; nothing is cached then.
   */
  async render(encoder: PromptEncoder, request: PromptRequest, namespace: string | null): Promise<EncodedPrompt> {
    if (isLongText(request, MAX_KEY_LENGTH)) return renderAndEncode(encoder, request);
    const { messages, tools, addGenerationPrompt, continuesFinalMessage, addsSpecialTokens, variables, template } = request;
    const key = JSON.stringify([
      namespace,
      encoder.directory,
      encoder.tail,
      messages,
      tools,
      addGenerationPrompt,
      continuesFinalMessage,
      addsSpecialTokens,
      variables,
      template,
    ]);
    const known = this.#entries.peek(key);
    if (known !== undefined && this.#now() - known.madeAtMs < LIFETIME_MS) return known;
    const entry = { ...(await renderAndEncode(encoder, request)), madeAtMs: this.#now() };
    if (key.length <= MAX_KEY_LENGTH) this.#entries.set(key, entry);
    return entry;
  }
}
