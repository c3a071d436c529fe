/** Inspection of base models in a separate thread, with limits on time and memory. */
import { readdir, stat } from "node:fs/promises";
import { join } from "node:path";
import type { Worker } from "node:worker_threads";
import { DataError, EngineError, UnavailableError } from "../../../base/errors.ts";
import type { Inspection, InspectionMessage, InspectionRequest } from "./inspect-worker.ts";
import type { VerifyBaseOptions } from "../../engine-info.ts";
import { spawnWorker } from "../../../base/util/spawn-worker.ts";
import { restoreError } from "../../../base/util/worker-rpc.ts";

/** Limits of one inspection. */
export interface InspectionLimits {
  /** Maximum time without progress, in milliseconds. Each tensor of the weights is progress. @default 60_000 */
  readonly timeoutMs?: number | undefined;
  /** Maximum heap of the thread, in MiB. @default 2048 */
  readonly maxHeapMb?: number | undefined;
}

/** Time after which an idle thread ends, in milliseconds. */
const IDLE_MS = 10_000;

/** Inspects base models, such that files in a directory can neither block nor crash the process. */
export class BaseInspector {
  readonly #timeoutMs: number;
  readonly #maxHeapMb: number;
  /** Inspections in progress, by their request as JSON. */
  readonly #running = new Map<string, Promise<void>>();
  /** Fingerprints of accepted directories, by the request as JSON. */
  readonly #accepted = new Map<string, string>();
  /** Threads that have not ended, also idle ones. */
  readonly #workers = new Set<Worker>();
  #isClosed = false;
  /** Idle thread, reused for the next inspection until its timer ends it. */
  #idle: { readonly worker: Worker; readonly timer: NodeJS.Timeout } | null = null;

  constructor({ timeoutMs = 60_000, maxHeapMb = 2048 }: InspectionLimits = {}) {
    this.#timeoutMs = timeoutMs;
    this.#maxHeapMb = maxHeapMb;
  }

  /**
   * Checks the configuration and the weights, loads the tokenizer and encodes test texts. Concurrent calls with the same
   * arguments share one inspection, and a directory whose files have not changed since it was accepted with these options is not inspected
   * again.
   *
   * @param options - `readsWeights`: whether the values of the weights are read as well as the headers of their files; `encodesTexts`:
   *   whether test texts are encoded. @default both true
   * @throws DataError `E_DATA`, UnsupportedError `E_UNSUPPORTED`, NotFoundError `E_NOT_FOUND` with the problem of the files; `E_DATA`
   *   also if the inspection exceeds a limit.
   * @throws UnavailableError `E_UNAVAILABLE` if the thread dies for another reason.
   */
  inspect(directory: string, { readsWeights = true, encodesTexts = true }: VerifyBaseOptions = {}): Promise<void> {
    const request: InspectionRequest = { directory, readsWeights, encodesTexts };
    const key = JSON.stringify(request);
    const running = this.#running.get(key);
    if (running !== undefined) return running;
    const result = this.#inspect(request, key).finally(() => this.#running.delete(key));
    this.#running.set(key, result);
    return result;
  }

  /** Stops all inspections; their calls reject. */
  async close(): Promise<void> {
    this.#isClosed = true;
    await Promise.all([...this.#workers].map((worker) => worker.terminate()));
  }

  /** Inspects a directory, unless its files are the ones that were accepted before. */
  async #inspect(request: InspectionRequest, key: string): Promise<void> {
    const fingerprint = await fingerprintOf(request.directory);
    if (fingerprint !== null && this.#accepted.get(key) === fingerprint) return;
    if (this.#isClosed) throw new EngineError("The engine is closed");
    const worker = this.#acquire();
    const { error } = await this.#ask(worker, request).catch((failure: unknown) => {
      void worker.terminate();
      throw failure;
    });
    this.#keep(worker);
    if (error !== null) throw restoreError(error);
    if (fingerprint !== null) this.#accepted.set(key, fingerprint);
  }

  /** Returns the idle thread, or starts one. */
  #acquire(): Worker {
    const idle = this.#idle;
    this.#idle = null;
    if (idle !== null) {
      clearTimeout(idle.timer);
      idle.worker.ref();
      return idle.worker;
    }
    const worker = spawnWorker("engine/onnx/threads/inspect-worker", { resourceLimits: { maxOldGenerationSizeMb: this.#maxHeapMb } });
    this.#workers.add(worker);
    // A running inspection has its own listener; an idle thread that dies is replaced by the next inspection.
    worker.on("error", () => {});
    worker.once("exit", () => {
      this.#workers.delete(worker);
      if (this.#idle?.worker === worker) this.#idle = null;
    });
    return worker;
  }

  /** Keeps a thread for the next inspection, unless another one is idle. */
  #keep(worker: Worker): void {
    if (this.#idle !== null) return void worker.terminate();
    worker.unref();
    const end = () => {
      // Until it has ended, no other inspection may use the thread.
      this.#idle = null;
      void worker.terminate();
    };
    this.#idle = { worker, timer: setTimeout(end, IDLE_MS).unref() };
  }

  /** Sends a request to a thread and waits for the result. Rejects if the thread dies or exceeds a limit. */
  #ask(worker: Worker, request: InspectionRequest): Promise<Inspection> {
    return new Promise<Inspection>((resolve, reject) => {
      const rejectOver = (limit: string) => reject(new DataError(`Loading the files of the base model takes more than ${limit}`));
      const timer = setTimeout(() => rejectOver(`${this.#timeoutMs / 1000} s for one step`), this.#timeoutMs);
      const onError = (error: NodeJS.ErrnoException) => {
        if (error.code === "ERR_WORKER_OUT_OF_MEMORY") rejectOver(`${this.#maxHeapMb} MiB of memory`);
        else reject(new UnavailableError(`The thread that checks base models died: ${error.message}`, { cause: error }));
      };
      const onExit = () => {
        clearTimeout(timer);
        reject(this.#isClosed ? new EngineError("The engine is closed") : new UnavailableError("The thread that checks base models died"));
      };
      worker.once("error", onError).once("exit", onExit);
      const onMessage = (message: InspectionMessage) => {
        if (message === "progress") {
          timer.refresh();
          return;
        }
        clearTimeout(timer);
        worker.off("error", onError).off("exit", onExit).off("message", onMessage);
        resolve(message);
      };
      worker.on("message", onMessage);
      worker.postMessage(request);
    });
  }
}

/** Returns names, sizes, inodes and modification times of a file or of a directory's files; null if it cannot be read. */
async function fingerprintOf(directory: string): Promise<string | null> {
  try {
    const names = (await stat(directory)).isFile() ? [""] : (await readdir(directory)).toSorted();
    const files = await Promise.all(names.map((name) => stat(join(directory, name), { bigint: true })));
    return files.map(({ size, ino, mtimeNs }, index) => `${names[index]} ${size} ${ino} ${mtimeNs}`).join("\n");
  } catch {
    return null;
  }
}
