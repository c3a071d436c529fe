/** Reader of JSON bodies: small ones on the serving thread, large ones on a work thread. */
import { ownBuffer } from "../work/own-buffer.ts";
import type { TaskThread, WorkPool } from "../work/pool.ts";
import type { BodyTasks } from "./body-tasks.ts";
import { readBody, type JsonBody, type PlainBody, type PlainKind } from "./requests.ts";

/** Max bytes of JSON processed on the serving thread, where it takes a few milliseconds. */
export const SMALL_JSON_BYTES = 128 * 1024;

export class BodyReader {
  readonly #pool: WorkPool;

  constructor(pool: WorkPool) {
    this.#pool = pool;
  }

  /** Parses and validates a JSON body; see `readBody` of `requests.ts`. Transfers the buffer of `bytes`. */
  async read<K extends PlainKind>(kind: K, bytes: Uint8Array, signal?: AbortSignal): Promise<JsonBody<PlainBody<K>>> {
    if (bytes.length <= SMALL_JSON_BYTES) return readBody(kind, bytes);
    const own = ownBuffer(bytes);
    const task = { kind, bytes: new Uint8Array(own) };
    const read = await this.#pool.use((thread: TaskThread<BodyTasks>) => thread.run("readBody", task, { transfer: [own] }), signal);
    return read as JsonBody<PlainBody<K>>;
  }
}
