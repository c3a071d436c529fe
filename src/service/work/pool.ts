/**
 * Threads for work that would block the event loop of the serving thread: parsing large bodies, templates, tokenization, grammars, training
 * data. The owners of the work define the tasks; `request-worker.ts` of the service registers the tasks of all owners in a thread.
 */
import type { Worker } from "node:worker_threads";
import PQueue from "p-queue";
import {
  restoreCause,
  restoreError,
  WorkerClient,
  type ErrorClasses,
  type MethodInput,
  type MethodName,
  type MethodOutput,
  type Methods,
  type SentError,
} from "../../base/util/worker-rpc.ts";
import { EngineError, UnsupportedError } from "../../base/errors.ts";

/** Milliseconds after which an idle thread ends and frees its memory. */
const IDLE_MS = 30_000;

/** Options of {@link TaskThread.run}. */
export interface TaskOptions {
  readonly signal?: AbortSignal | undefined;
  /** Buffers of the input to transfer instead of copy. */
  readonly transfer?: readonly ArrayBuffer[] | undefined;
  /** Milliseconds after which the thread is terminated and the task rejected. @default no limit */
  readonly timeoutMs?: number | undefined;
}

/** Worker thread for one owner of tasks, with the tasks `T` of that owner. */
export interface TaskThread<T extends Methods> {
  readonly isAlive: boolean;
  /**
   * Runs a task.
   *
   * @throws the task's error, with the same code.
   * @throws UnsupportedError `E_UNSUPPORTED` if the task takes longer than `timeoutMs`; the thread is terminated.
   * @throws EngineError `E_ENGINE` if the thread ends by itself, for example because it runs out of memory.
   * @throws the signal's reason if it aborts; the thread is terminated.
   */
  run<N extends MethodName<T>>(name: N, input: MethodInput<T, N>, options?: TaskOptions): Promise<MethodOutput<T, N>>;
}

/** Options of {@link WorkPool}. */
export interface WorkPoolOptions {
  /** Max concurrent tasks; further tasks wait in order of arrival. */
  readonly maxThreads: number;
  /** Starts a thread that serves the tasks of all owners. */
  readonly spawn: () => Worker;
  /** Error classes to reconstruct in addition to the classes of the package. @default none */
  readonly errorClasses?: ErrorClasses | undefined;
}

/**
 * Reconstructs the error of a task. A system error stays one, because its message may contain paths and must not be sent to a client.
 *
 * @param classes - Error classes to reconstruct in addition to the classes of the package. @default none
 */
export function restoreTaskError(sent: SentError, classes?: ErrorClasses): Error {
  return sent.typed === undefined && sent.code !== undefined ? restoreCause(sent) : restoreError(sent, classes);
}

/** Worker thread that runs one task at a time. */
export class WorkThread implements TaskThread<Methods> {
  readonly #worker: Worker;
  readonly #client: WorkerClient<Methods>;
  #isAlive = true;
  /** Error of a thread that ended by itself, for example because it ran out of memory. */
  #failure: Error | null = null;

  constructor({ spawn, errorClasses }: Pick<WorkPoolOptions, "spawn" | "errorClasses">) {
    this.#worker = spawn();
    this.#client = new WorkerClient(this.#worker, {
      onDeath: (error) => {
        if (this.#isAlive) this.#failure = error;
        this.#isAlive = false;
      },
      restore: (sent) => restoreTaskError(sent, errorClasses),
    });
  }

  get isAlive(): boolean {
    return this.#isAlive;
  }

  async run<N extends string>(
    name: N,
    input: MethodInput<Methods, N>,
    { signal, transfer, timeoutMs }: TaskOptions = {},
  ): Promise<MethodOutput<Methods, N>> {
    const limit = this.#limitTime(timeoutMs);
    try {
      return await Promise.race([this.#client.call(name, input, { signal, transfer }), limit.exceeded]);
    } catch (error) {
      // The aborted task may still run; the next task must not wait for it.
      if (signal?.aborted === true) void this.end();
      // Not `E_UNAVAILABLE`, which asks for a repetition: the same request may end the next thread, too.
      if (this.#failure !== null && error === this.#failure)
        throw new EngineError(`The thread that prepares requests ended: ${this.#failure.message}`, { cause: error });
      throw error;
    } finally {
      clearTimeout(limit.timer);
    }
  }

  /** Starts the time limit of a task. `exceeded` never resolves. It rejects after the limit, and the thread is terminated. */
  #limitTime(timeoutMs: number | undefined): { readonly exceeded: Promise<never>; readonly timer: NodeJS.Timeout | undefined } {
    let timer: NodeJS.Timeout | undefined;
    const exceeded = new Promise<never>((_, reject) => {
      if (timeoutMs === undefined) return;
      timer = setTimeout(() => {
        const seconds = timeoutMs / 1000;
        reject(
          new UnsupportedError(`Expected a request that is prepared within ${seconds} s, got one that takes longer; send less at once`),
        );
        void this.end();
      }, timeoutMs);
    });
    // The race may be over before the limit is exceeded.
    exceeded.catch(() => undefined);
    return { exceeded, timer };
  }

  /** Terminates the thread, even during a task. */
  async end(): Promise<void> {
    this.#isAlive = false;
    await this.#worker.terminate();
  }
}

/** Pool of worker threads, started on demand. */
export class WorkPool {
  readonly #options: WorkPoolOptions;
  readonly #queue: PQueue;
  readonly #idleThreads: { readonly thread: WorkThread; readonly timer: NodeJS.Timeout }[] = [];
  /** All living threads, in use or idle. */
  readonly #livingThreads = new Set<WorkThread>();
  #isClosed = false;

  constructor(options: WorkPoolOptions) {
    this.#options = options;
    this.#queue = new PQueue({ concurrency: options.maxThreads });
  }

  /**
   * Runs `work` with exclusive use of a thread.
   *
   * @throws the signal's reason if it aborts while waiting for a thread.
   */
  async use<T extends Methods, R>(work: (thread: TaskThread<T>) => Promise<R>, signal?: AbortSignal): Promise<R> {
    const task = async (): Promise<R> => {
      if (this.#isClosed) throw new EngineError("The service is closed");
      const thread = this.#acquire();
      try {
        return await work(thread as unknown as TaskThread<T>);
      } finally {
        this.#release(thread);
      }
    };
    return this.#queue.add(task, signal === undefined ? {} : { signal });
  }

  /** Terminates all threads. Work in progress fails. */
  async close(): Promise<void> {
    this.#isClosed = true;
    for (const { timer } of this.#idleThreads.splice(0)) clearTimeout(timer);
    await Promise.all([...this.#livingThreads].map((thread) => thread.end()));
  }

  /** Returns a living idle thread, or starts one. */
  #acquire(): WorkThread {
    for (let idle = this.#idleThreads.pop(); idle !== undefined; idle = this.#idleThreads.pop()) {
      clearTimeout(idle.timer);
      if (idle.thread.isAlive) return idle.thread;
      this.#livingThreads.delete(idle.thread);
    }
    const thread = new WorkThread(this.#options);
    this.#livingThreads.add(thread);
    return thread;
  }

  /** Keeps a thread for later tasks, until it was idle for {@link IDLE_MS}. */
  #release(thread: WorkThread): void {
    if (!thread.isAlive || this.#isClosed) {
      this.#livingThreads.delete(thread);
      return;
    }
    const entry = {
      thread,
      timer: setTimeout(() => {
        this.#idleThreads.splice(this.#idleThreads.indexOf(entry), 1);
        this.#livingThreads.delete(thread);
        void thread.end();
      }, IDLE_MS).unref(),
    };
    this.#idleThreads.push(entry);
  }
}
