/** Translation of request bodies. A large body takes many milliseconds, so it is translated on a work thread. */
import { parseBody } from "../chat/request/request.ts";
import { bodyText } from "../requests.ts";
import { translateCompletions } from "./completions/request.ts";
import type { Members, Translation } from "./dialect.ts";
import { translateGenerate } from "./generate.ts";
import { translateCount, translateMessages } from "./messages/request.ts";
import { translateResponses } from "./responses/request.ts";
import { translateDetokenize, translateTokenize } from "./tokens.ts";

/** Translations by name: of a dialect, or of a request about tokens. */
const TRANSLATIONS = {
  messages: translateMessages,
  responses: translateResponses,
  completions: translateCompletions,
  generate: translateGenerate,
  count: translateCount,
  tokenize: translateTokenize,
  detokenize: translateDetokenize,
} as const satisfies Readonly<Record<string, (members: Members) => Translation>>;

/** Name of a translation. */
export type TranslationName = keyof typeof TRANSLATIONS;

/** Result of a translation. */
export type Translated<N extends TranslationName> = ReturnType<(typeof TRANSLATIONS)[N]>;

/**
 * Parses and translates a request body.
 *
 * @throws BodyError `E_ARGUMENT` for a malformed body; UnsupportedError `E_UNSUPPORTED` naming an unsupported field or value; other errors
 *   of `bodyText`.
 */
export function translateBody<N extends TranslationName>(name: N, bytes: Uint8Array): Translated<N> {
  return TRANSLATIONS[name](parseBody(bodyText("chat", bytes))) as Translated<N>;
}
