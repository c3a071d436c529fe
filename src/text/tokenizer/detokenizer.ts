/** Decoding of a stream of token ids, one at a time. */

import type { ChatTokenizer } from "./chat-tokenizer.ts";

/** Incremental decoder of one stream; {@link createDetokenizer} makes it. */
export interface Detokenizer {
  /** Returns the text that became certain with this token; `""` while a character is incomplete. */
  push(id: number): string;
  /** Returns the withheld text, with U+FFFD for bytes that are not a whole character. Call once, at the end. */
  flush(): string;
}

/**
 * Creates an incremental {@link ChatTokenizer.decode}: the pieces, joined, equal the result of `decode` for all ids at once. No piece ends
 * inside a character.
 *
 * @example
 * ```ts
 * import { loadTokenizer } from "./load.ts";
 *
 * const detokenizer = createDetokenizer(await loadTokenizer("/models/base"), { skipSpecialTokens: true });
 * for (const id of [5, 6, 7]) process.stdout.write(detokenizer.push(id));
 * process.stdout.write(detokenizer.flush());
 * ```
 */
export function createDetokenizer(
  tokenizer: Pick<ChatTokenizer, "tokenBytes" | "specialTokenIds">,
  options: { readonly skipSpecialTokens?: boolean | undefined } = {},
): Detokenizer {
  const skipsSpecial = options.skipSpecialTokens ?? false;
  const decoder = new TextDecoder("utf-8", { ignoreBOM: true });
  return {
    push(id) {
      const bytes = tokenizer.tokenBytes(id);
      if (skipsSpecial && tokenizer.specialTokenIds.has(id)) return "";
      return decoder.decode(bytes, { stream: true });
    },
    flush: () => decoder.decode(),
  };
}
