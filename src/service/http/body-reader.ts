/** Reader of JSON bodies: small ones on the serving thread, large ones on a work thread. */
import { ownBuffer } from "../work/own-buffer.ts";
import type { TaskThread, WorkPool } from "../work/pool.ts";
import type { BodyTasks } from "./body-tasks.ts";
import { readBody, type JsonBody, type PlainBody, type PlainKind } from "./requests.ts";

/** Max bytes of JSON processed on the serving thread, where it takes a few milliseconds. */
export const SMALL_JSON_BYTES = 128 * 1024;

/** Reader of the JSON bodies of all routes besides chat completions, which `Translator` reads. */
export class BodyReader {
  readonly #pool: WorkPool;

  constructor(pool: WorkPool) {
    this.#pool = pool;
  }

  /** Parses and validates a JSON body; see `readBody` of `requests.ts`. Transfers the buffer of `bytes`. */
  async read<K extends PlainKind>(kind: K, bytes: Uint8Array, signal?: AbortSignal): Promise<JsonBody<PlainBody<K>>> {
    if (bytes.length <= SMALL_JSON_BYTES) return readBody(kind, bytes);
    const buffer = ownBuffer(bytes);
    const input = { kind, bytes: new Uint8Array(buffer) };
    const run = (thread: TaskThread<BodyTasks>) => thread.run("readBody", input, { transfer: [buffer] });
    return (await this.#pool.use(run, signal)) as JsonBody<PlainBody<K>>;
  }
}
