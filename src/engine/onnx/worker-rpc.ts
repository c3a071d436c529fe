/**
 * Remote procedure calls between the serving thread and a compute worker: one message per call, one per result, and `event` messages
 * that the worker posts on its own. An abort is also a message, which the worker receives when it next yields to its event loop.
 *
 * A worker is never terminated from outside, because stopping a thread inside the native runtime crashes the process. Instead, the
 * worker receives a close message, finishes the calls before it, and exits.
 */
import type { MessagePort, Worker } from "node:worker_threads";
import {
  ArgumentError,
  ConfigError,
  DataError,
  EngineError,
  EngineMissingError,
  InternalError,
  NoSpaceError,
  NonFiniteError,
  NotFoundError,
  ShapeError,
  UnavailableError,
  UnsupportedError,
  type WhetstoneError,
} from "../../errors.ts";
import { isNoSpace } from "../../util/no-space.ts";

/** Error classes by name, to reconstruct a worker's errors in the calling thread. */
const ERRORS: Readonly<Record<string, new (message: string) => WhetstoneError>> = {
  ArgumentError,
  ConfigError,
  DataError,
  EngineError,
  EngineMissingError,
  InternalError,
  NoSpaceError,
  NonFiniteError,
  NotFoundError,
  ShapeError,
  UnavailableError,
  UnsupportedError,
};

interface Call {
  readonly call: number;
  readonly method: string;
  readonly args: readonly unknown[];
}
type ToWorker = Call | { readonly abort: number } | { readonly close: true };
type FromWorker =
  | { readonly answer: number; readonly value: unknown }
  | { readonly answer: number; readonly error: { readonly name: string; readonly message: string } }
  | { readonly event: unknown };

/** Methods of a worker. The last argument is aborted when the caller aborts. */
export type Methods = Readonly<Record<string, (args: never, signal: AbortSignal) => unknown>>;

/** Return value with buffers that are transferred instead of copied. */
export class Handover<T = unknown> {
  readonly value: T;
  readonly transfer: readonly ArrayBuffer[];

  constructor(value: T, transfer: readonly ArrayBuffer[]) {
    this.value = value;
    this.transfer = transfer;
  }
}

/** Returns the name and message of an error, to send it to another thread. */
export function describeError(error: unknown): { name: string; message: string } {
  // The code of a system error is not sent, but the calling thread must recognize a full disk.
  if (isNoSpace(error)) return { name: "NoSpaceError", message: error instanceof Error ? error.message : String(error) };
  return error instanceof Error ? { name: error.name, message: error.message } : { name: "EngineError", message: String(error) };
}

/** Reconstructs an error from its name and message. */
export function restoreError({ name, message }: { name: string; message: string }): Error {
  return new (ERRORS[name] ?? EngineError)(message);
}

/** Serves `methods` on a worker's port, one call at a time in order of arrival. */
export function serveCalls(port: MessagePort, methods: Methods): void {
  const aborts = new Map<number, AbortController>();
  let last: Promise<unknown> = Promise.resolve();
  port.on("message", (message: ToWorker) => {
    if ("close" in message) {
      void last.then(() => port.close());
      return;
    }
    if ("abort" in message) {
      aborts.get(message.abort)?.abort();
      return;
    }
    const controller = new AbortController();
    aborts.set(message.call, controller);
    last = last.then(() => answer(port, methods, message, controller.signal)).finally(() => aborts.delete(message.call));
  });
}

async function answer(port: MessagePort, methods: Methods, { call, method, args }: Call, signal: AbortSignal): Promise<void> {
  try {
    signal.throwIfAborted();
    const result = await methods[method]!(args as never, signal);
    if (result instanceof Handover)
      port.postMessage({ answer: call, value: result.value } satisfies FromWorker, result.transfer as ArrayBuffer[]);
    else port.postMessage({ answer: call, value: result } satisfies FromWorker);
  } catch (error) {
    port.postMessage({ answer: call, error: describeError(error) } satisfies FromWorker);
  }
}

interface Pending {
  readonly resolve: (value: never) => void;
  readonly reject: (error: unknown) => void;
}

/** Client of a worker, in the calling thread. */
export class WorkerClient {
  readonly #worker: Worker;
  readonly #pending = new Map<number, Pending>();
  /** Resolves when the worker has exited. */
  readonly exited: Promise<void>;
  #failure: Error | null = null;
  #nextCall = 0;
  #holders = 0;
  #isClosing = false;

  /**
   * @param onEvent - Called with each event of the worker.
   * @param onDeath - Called once if the worker exits without {@link close}; pending and later calls reject with the same error.
   */
  constructor(worker: Worker, onEvent: (event: never) => void, onDeath: (error: Error) => void) {
    this.#worker = worker;
    worker.on("message", (message: FromWorker) => {
      if ("event" in message) onEvent(message.event as never);
      else this.#settle(message);
    });
    // An idle engine must not keep the process alive, but a pending call must. Called after adding the listener, which adds a reference.
    worker.unref();
    const fail = (error: Error) => {
      if (this.#failure) return;
      this.#failure = error;
      for (const { reject } of this.#pending.values()) reject(error);
      this.#pending.clear();
      if (!this.#isClosing) onDeath(error);
    };
    worker.on("error", (cause) =>
      fail(new UnavailableError(`An engine worker died: ${cause instanceof Error ? cause.message : String(cause)}`, { cause })),
    );
    this.exited = new Promise((resolve) =>
      worker.once("exit", (code) => {
        fail(
          this.#isClosing
            ? new EngineError("The engine is closed")
            : new UnavailableError(`An engine worker died: it exited with code ${code}`),
        );
        resolve();
      }),
    );
  }

  /** Calls a method. An abort rejects immediately with the signal's reason and is forwarded to the worker. */
  async call<T>(
    method: string,
    args: readonly unknown[],
    options: { signal?: AbortSignal | undefined; transfer?: readonly ArrayBuffer[] | undefined } = {},
  ): Promise<T> {
    const { signal, transfer = [] } = options;
    signal?.throwIfAborted();
    if (this.#failure) throw this.#failure;
    const call = this.#nextCall++;
    const letGo = this.hold();
    let onAbort: (() => void) | undefined;
    try {
      return await new Promise<T>((resolve, reject) => {
        this.#pending.set(call, { resolve, reject });
        onAbort = () => {
          this.#worker.postMessage({ abort: call } satisfies ToWorker);
          reject(signal!.reason);
        };
        signal?.addEventListener("abort", onAbort, { once: true });
        this.#worker.postMessage({ call, method, args } satisfies ToWorker, transfer as ArrayBuffer[]);
      });
    } finally {
      this.#pending.delete(call);
      letGo();
      if (onAbort) signal?.removeEventListener("abort", onAbort);
    }
  }

  /** Keeps the process alive until the returned function is called. */
  hold(): () => void {
    if (this.#holders++ === 0) this.#worker.ref();
    let isHeld = true;
    return () => {
      if (isHeld && --this.#holders === 0) this.#worker.unref();
      isHeld = false;
    };
  }

  /** Waits for earlier calls and for the exit of the worker. */
  async close(): Promise<void> {
    this.#isClosing = true;
    if (!this.#failure) this.#worker.postMessage({ close: true } satisfies ToWorker);
    this.hold();
    await this.exited;
  }

  #settle(message: Extract<FromWorker, { answer: number }>): void {
    const pending = this.#pending.get(message.answer);
    if (!pending) return;
    if ("error" in message) pending.reject(restoreError(message.error));
    else pending.resolve(message.value as never);
  }
}
