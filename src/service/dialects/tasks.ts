/** Tasks of a work thread that parse, translate and open requests of all dialects. */
import { Handover } from "../../base/util/worker-rpc.ts";
import { chatBuffersOf, openChats, toSentChat, type ChatBody, type ChatReadOptions, type SentChat } from "../chat/request/opened-chat.ts";
import { openBody, type Opened, type Translated, type TranslationName } from "./translations.ts";
import { first } from "../../base/util/values.ts";

/** Result of `openBody` as plain data, which can be sent to another thread. */
export type SentOpened<N extends TranslationName> = Omit<Opened<Translated<N>>, "calls"> & { readonly calls: readonly SentChat[] };

/** Input of the task `open`. */
interface OpenInput {
  readonly name: TranslationName;
  readonly bytes: Uint8Array;
  readonly options: ChatReadOptions;
}

/** Tasks that open requests; `Translator` calls them and converts their results back with `fromSentChat`. */
export const DIALECT_TASKS = {
  open: async ({ name, bytes, options }: OpenInput): Promise<Handover<SentOpened<TranslationName>>> => {
    const opened = await openBody(name, bytes, options);
    const calls = opened.calls.map(toSentChat);
    return new Handover({ ...opened, calls }, calls.flatMap(chatBuffersOf));
  },

  openChat: ({ body, options }: { readonly body: ChatBody; readonly options: ChatReadOptions }): Handover<SentChat> => {
    const sent = toSentChat(first(openChats([body], options)));
    return new Handover(sent, chatBuffersOf(sent));
  },
} as const;

/** Type of {@link DIALECT_TASKS}. */
export type DialectTasks = typeof DIALECT_TASKS;
