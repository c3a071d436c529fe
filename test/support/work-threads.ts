/**
 * Work threads of services in the process of the tests. Loading the modules of a thread takes 300 ms of CPU time, and most tests start a
 * service of their own: a thread that is idle when its service closes serves a service of a later test. A test never gets a thread that
 * served itself before, so a service that it restarts finds no cached tokenizer of its directories.
 */
import { EventEmitter } from "node:events";
import type { Worker } from "node:worker_threads";

/** More threads than a service has at once are rarely needed again. */
const MAX_SPARE = 6;

const spare: Worker[] = [];
/** Threads whose services ended during the current test. */
let released: Worker[] = [];

/** Makes the threads of earlier tests available. Called before each test. */
export function reuseWorkThreads(): void {
  const kept = released.splice(0, MAX_SPARE - spare.length);
  spare.push(...kept);
  for (const worker of released) void worker.terminate();
  released = [];
}

/** Returns a work thread: one of an earlier test, or a new one. */
export function workThread(start: () => Worker): Worker {
  return new LentThread(spare.pop() ?? start()) as unknown as Worker;
}

/** The part of `Worker` that `WorkThread` and `WorkerClient` use. */
class LentThread extends EventEmitter {
  readonly #worker: Worker;
  /** Calls without an answer: a thread that works on something does not serve another service. */
  #running = 0;
  #hasEnded = false;
  readonly #listeners = {
    message: (message: object) => {
      if ("answer" in message) this.#running--;
      this.emit("message", message);
    },
    error: (error: unknown) => this.emit("error", error),
    exit: (code: number) => {
      this.#hasEnded = true;
      this.emit("exit", code);
    },
  };

  constructor(worker: Worker) {
    super();
    this.#worker = worker;
    for (const [name, listener] of Object.entries(this.#listeners)) worker.on(name, listener);
  }

  postMessage(message: object, transfer?: readonly ArrayBuffer[]): void {
    if ("call" in message) this.#running++;
    this.#worker.postMessage(message, transfer);
  }

  ref(): void {
    this.#worker.ref();
  }

  unref(): void {
    this.#worker.unref();
  }

  async terminate(): Promise<number> {
    if (this.#hasEnded || this.#running > 0) return this.#worker.terminate();
    this.#hasEnded = true;
    for (const [name, listener] of Object.entries(this.#listeners)) this.#worker.off(name, listener);
    this.#worker.unref();
    released.push(this.#worker);
    this.emit("exit", 1);
    return 1;
  }
}
