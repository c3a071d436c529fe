/** Result of translating a request of a dialect: chat completions, which the service opens and runs. */
import type { Members } from "./members.ts";

/** Prompt that replaces the messages of a body: a text, or token ids. The chat template is not applied. */
export type RawPrompt = { readonly text: string; readonly addsSpecialTokens: boolean } | { readonly ids: readonly number[] };

/** Chat completion to which a request is translated. */
export interface TranslatedCall {
  /** Members of the chat completion's body, without `stream`. */
  readonly body: Members;
  /** Prompt of a body without `messages`. @default the rendered messages */
  readonly prompt?: RawPrompt | undefined;
}
