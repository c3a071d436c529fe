/**
 * Remote procedure calls between the serving thread and a compute worker: one message per call, one per result, and `event` messages
 * that the worker posts on its own. An abort is also a message, which the worker receives when it next yields to its event loop.
 *
 * A worker is never terminated from outside, because stopping a thread inside the native runtime crashes the process. Instead, the
 * worker receives a close message, finishes the calls before it, and exits.
 */
import type { EventEmitter } from "node:events";
import type { MessagePort } from "node:worker_threads";
import * as errors from "../errors.ts";
import { EngineError, NoSpaceError, UnavailableError, WhetstoneError, type ErrorCode, type WhetstoneErrorOptions } from "../errors.ts";
import { isNoSpace } from "./no-space.ts";
import { onceAborted } from "./abort.ts";
import { messageOf } from "./values.ts";

/** Interface of a worker that its client uses: a thread, or a process with the interface of a thread. */
export interface WorkerEnd extends Pick<EventEmitter, "on" | "once"> {
  postMessage(message: unknown, transfer?: readonly ArrayBuffer[]): void;
  ref(): void;
  unref(): void;
}

/** Error classes by name. */
export type ErrorClasses = Readonly<Record<string, new (message: string, options: WhetstoneErrorOptions) => WhetstoneError>>;

/** Max levels of `cause` that are sent. */
const MAX_CAUSES = 8;

/** Plain-data form of an error, to send it to another thread. */
export interface SentError {
  readonly name: string;
  readonly message: string;
  readonly stack: string | undefined;
  /** Code of a {@link WhetstoneError}, or of an operating system error. */
  readonly code: string | undefined;
  /** Fields of a {@link WhetstoneError}; absent for any other error. */
  readonly typed?: { readonly param: string | null; readonly retryable: boolean };
  readonly cause?: SentError;
}

/** Call of a method. */
interface Call {
  /** Number of the call, which its answer repeats. */
  readonly call: number;
  readonly method: string;
  readonly input: unknown;
}
/** Message to the worker: a call, the abort of a call by its number, or the request to close. */
type ToWorker = Call | { readonly abort: number } | { readonly close: true };
/** Message from the worker: result or error of a call, by its number, or an event. */
type FromWorker =
  | { readonly answer: number; readonly value: unknown }
  | { readonly answer: number; readonly error: SentError }
  | { readonly event: unknown };

/** Methods of a worker. Each takes one value, such as a tuple, and a signal that is aborted when the caller aborts. */
export type Methods = Readonly<Record<string, (input: never, signal: AbortSignal) => unknown>>;

/** Names of the methods of a worker. */
export type MethodName<M extends Methods> = keyof M & string;

/** Input of a worker's method. */
export type MethodInput<M extends Methods, K extends keyof M> = Parameters<M[K]>[0];

/** Result of a worker's method, as the calling thread receives it. */
export type MethodOutput<M extends Methods, K extends keyof M> = Received<Awaited<ReturnType<M[K]>>>;
/** Value that arrives at the calling thread for a return value: the content of a {@link Handover}. */
type Received<T> = T extends Handover<infer V> ? V : T;

/** Return value of a method with buffers that are transferred to the caller instead of copied. */
export class Handover<T = unknown> {
  readonly value: T;
  readonly transfer: readonly ArrayBuffer[];

  constructor(value: T, transfer: readonly ArrayBuffer[]) {
    this.value = value;
    this.transfer = transfer;
  }
}

/** Converts an error and its causes to plain data. */
export function describeError(error: unknown, maxCauses = MAX_CAUSES): SentError {
  if (!(error instanceof Error)) return { name: "Error", message: String(error), stack: undefined, code: undefined };
  const { name, message, stack, cause, code } = error as NodeJS.ErrnoException;
  return {
    name,
    message,
    stack,
    code: typeof code === "string" ? code : undefined,
    ...(WhetstoneError.isInstance(error) ? { typed: { param: error.param, retryable: error.retryable } } : {}),
    ...(cause === undefined || maxCauses === 0 ? {} : { cause: describeError(cause, maxCauses - 1) }),
  };
}

/** Error of this package whose class this module does not know, with the fields of the original. */
class RestoredError extends WhetstoneError {
  readonly code: ErrorCode;

  constructor({ name, message, code }: SentError, options: WhetstoneErrorOptions) {
    super(message, options);
    this.name = name;
    this.code = code as ErrorCode;
  }
}

/**
 * Reconstructs an error of this package: name, code, message, `param`, `retryable`, stack and causes are equal to the original's. Any other
 * error becomes the cause of a {@link NoSpaceError} if it reports a full disk, else of an {@link EngineError}.
 *
 * @param classes - Error classes to reconstruct in addition to the package's.
 */
export function restoreError(sent: SentError, classes: ErrorClasses = {}): WhetstoneError {
  const { name, message, stack, typed, cause } = sent;
  if (typed === undefined) {
    const original = restoreCause(sent);
    const ErrorClass = isNoSpace(original) ? NoSpaceError : EngineError;
    return new ErrorClass(message, { cause: original });
  }
  const options = { ...typed, ...(cause === undefined ? {} : { cause: restoreCause(cause) }) };
  const ErrorClass = classes[name] ?? (errors as unknown as ErrorClasses)[name];
  const error = ErrorClass === undefined ? new RestoredError(sent, options) : new ErrorClass(message, options);
  return Object.assign(error, { stack });
}

/**
 * Reconstructs an error of this package; any other becomes an `Error` with the name, the code, the stack and the causes of the original.
 */
export function restoreCause(sent: SentError): Error {
  const { name, message, stack, code, typed, cause } = sent;
  if (typed !== undefined) return restoreError(sent);
  const error = new Error(message, cause === undefined ? {} : { cause: restoreCause(cause) });
  return Object.assign(error, { name, stack }, code === undefined ? {} : { code });
}

/** Serves `methods` on a worker's port, one call at a time in order of arrival. */
export function serveCalls(port: MessagePort, methods: Methods): void {
  const aborts = new Map<number, AbortController>();
  /** Resolves when all calls received so far have been answered; never rejects. */
  let lastAnswer: Promise<unknown> = Promise.resolve();
  port.on("message", (message: ToWorker) => {
    if ("close" in message) {
      void lastAnswer.then(() => port.close());
      return;
    }
    if ("abort" in message) {
      aborts.get(message.abort)?.abort();
      return;
    }
    const controller = new AbortController();
    aborts.set(message.call, controller);
    lastAnswer = lastAnswer.then(() => answer(port, methods, message, controller.signal)).finally(() => aborts.delete(message.call));
  });
}

/** Runs one call and posts its result or its error. */
async function answer(port: MessagePort, methods: Methods, { call, method, input }: Call, signal: AbortSignal): Promise<void> {
  try {
    signal.throwIfAborted();
    const result = await methods[method]!(input as never, signal);
    if (result instanceof Handover)
      port.postMessage({ answer: call, value: result.value } satisfies FromWorker, result.transfer as ArrayBuffer[]);
    else port.postMessage({ answer: call, value: result } satisfies FromWorker);
  } catch (error) {
    port.postMessage({ answer: call, error: describeError(error) } satisfies FromWorker);
  }
}

/** Functions that settle the promise of a call. */
interface PendingCall {
  readonly resolve: (value: never) => void;
  readonly reject: (error: unknown) => void;
}

/** Options of {@link WorkerClient}. */
export interface WorkerClientOptions<E> {
  /** Called with each event of the worker. @default no callback */
  readonly onEvent?: (event: E) => void;
  /** Called once if the worker exits without {@link WorkerClient.close}; pending and later calls reject with the same error. */
  readonly onDeath: (error: Error) => void;
  /** Reconstructs the error of a call. @default {@link restoreError} */
  readonly restore?: (error: SentError) => Error;
}

/** Client of a worker with the methods `M` and the events `E`, in the calling thread. */
export class WorkerClient<M extends Methods, E = never> {
  readonly #worker: WorkerEnd;
  readonly #restore: (error: SentError) => Error;
  readonly #pending = new Map<number, PendingCall>();
  /** Resolves when the worker has exited. */
  readonly exited: Promise<void>;
  /** Error of all calls after the worker has exited or died; null before. */
  #failure: Error | null = null;
  #nextCall = 0;
  /** Number of pending calls and other holds that keep the process alive. */
  #holders = 0;
  #isClosing = false;

  constructor(worker: WorkerEnd, { onEvent, onDeath, restore = restoreError }: WorkerClientOptions<E>) {
    this.#worker = worker;
    this.#restore = restore;
    worker.on("message", (message: FromWorker) => {
      if ("event" in message) onEvent?.(message.event as E);
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
    worker.on("error", (cause) => fail(new UnavailableError(`An engine worker died: ${messageOf(cause)}`, { cause })));
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
  async call<K extends MethodName<M>>(
    method: K,
    input: MethodInput<M, K>,
    options: { signal?: AbortSignal | undefined; transfer?: readonly ArrayBuffer[] | undefined } = {},
  ): Promise<MethodOutput<M, K>> {
    const { signal, transfer = [] } = options;
    signal?.throwIfAborted();
    if (this.#failure) throw this.#failure;
    const call = this.#nextCall++;
    const release = this.hold();
    let removeListener: (() => void) | undefined;
    try {
      return await new Promise<MethodOutput<M, K>>((resolve, reject) => {
        this.#pending.set(call, { resolve, reject });
        removeListener = onceAborted(signal, () => {
          this.#worker.postMessage({ abort: call } satisfies ToWorker);
          reject(signal!.reason);
        });
        this.#worker.postMessage({ call, method, input } satisfies ToWorker, transfer);
      });
    } finally {
      this.#pending.delete(call);
      release();
      removeListener?.();
    }
  }

  /** Keeps the process alive until the returned function is called. */
  hold(): () => void {
    if (this.#holders === 0) this.#worker.ref();
    this.#holders++;
    let isHeld = true;
    return () => {
      if (!isHeld) return;
      isHeld = false;
      this.#holders--;
      if (this.#holders === 0) this.#worker.unref();
    };
  }

  /** Waits for earlier calls and for the exit of the worker. */
  async close(): Promise<void> {
    this.#isClosing = true;
    if (!this.#failure) this.#worker.postMessage({ close: true } satisfies ToWorker);
    // Held for good: the process waits for the worker's exit.
    this.hold();
    await this.exited;
  }

  /** Settles the call that a message answers, unless the call was aborted. */
  #settle(message: Extract<FromWorker, { answer: number }>): void {
    const pending = this.#pending.get(message.answer);
    if (!pending) return;
    if ("error" in message) pending.reject(this.#restore(message.error));
    else pending.resolve(message.value as never);
  }
}
