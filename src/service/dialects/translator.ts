/** Reader of requests of all dialects: small ones on the serving thread, large ones on a work thread. Each request is parsed once. */
import { fromSentChat, openChats, type ChatBody, type OpenedChat, type ChatReadOptions } from "../chat/request/opened-chat.ts";
import { isLongerThan } from "../chat/request/size.ts";
import { CHAT_TIMEOUT_MS, SMALL_CHAT_BYTES } from "../chat/work.ts";
import { ownBuffer } from "../work/own-buffer.ts";
import type { TaskThread, WorkPool } from "../work/pool.ts";
import type { DialectTasks, SentOpened } from "./tasks.ts";
import { openBody, type Opened, type Translated, type TranslationName } from "./translations.ts";
import { first } from "../../base/util/values.ts";

/** Reader of requests; see `openBody` and `openChats` for the functions that it runs on either thread. */
export class Translator {
  readonly #pool: WorkPool;

  constructor(pool: WorkPool) {
    this.#pool = pool;
  }

  /** Parses, translates and opens a request; see `openBody`. Transfers the buffer of `bytes`. */
  async open<N extends TranslationName>(
    name: N,
    bytes: Uint8Array,
    options: ChatReadOptions,
    signal?: AbortSignal,
  ): Promise<Opened<Translated<N>>> {
    if (bytes.length <= SMALL_CHAT_BYTES) return openBody(name, bytes, options);
    const buffer = ownBuffer(bytes);
    const input = { name, bytes: new Uint8Array(buffer), options };
    const runOptions = { transfer: [buffer], signal, timeoutMs: CHAT_TIMEOUT_MS };
    const run = (thread: TaskThread<DialectTasks>) => thread.run("open", input, runOptions);
    const sent = (await this.#pool.use(run, signal)) as SentOpened<N>;
    return { ...sent, calls: sent.calls.map(fromSentChat) } as unknown as Opened<Translated<N>>;
  }

  /** Opens a chat completion that was made of a request and of stored data; see `openChats`. */
  async openChat(body: ChatBody, options: ChatReadOptions, signal?: AbortSignal): Promise<OpenedChat> {
    if (!isLongerThan(body.members, SMALL_CHAT_BYTES)) return first(openChats([body], options));
    const run = (thread: TaskThread<DialectTasks>) => thread.run("openChat", { body, options }, { signal, timeoutMs: CHAT_TIMEOUT_MS });
    return fromSentChat(await this.#pool.use(run, signal));
  }
}
