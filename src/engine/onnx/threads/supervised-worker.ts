/** Worker that is replaced when it dies, after a delay that grows with repeated deaths. */
import { EngineError, UnavailableError } from "../../../base/errors.ts";
import type { WorkerStatus } from "../../port.ts";
import { WorkerClient, type Methods, type WorkerEnd } from "../../../base/util/worker-rpc.ts";
import { onceAborted } from "../../../base/util/abort.ts";

/** Delay before the first replacement, in milliseconds. */
const MIN_DELAY_MS = 100;
/** Maximum delay, in milliseconds. */
const MAX_DELAY_MS = 30_000;
/** Uptime after which the delay is reset, in milliseconds. */
const STABLE_MS = 60_000;

/** Death of a worker, reported before it is restarted. */
export interface WorkerDeath {
  /** Name of the worker, such as `sampler-0`. */
  readonly worker: string;
  /** Message of the exception, or the exit code. */
  readonly message: string;
  /** Time until the replacement starts, in milliseconds. */
  readonly restartsInMs: number;
}

/** Options of {@link SupervisedWorker}. */
export interface SupervisorOptions<E> {
  readonly name: string;
  readonly spawn: () => WorkerEnd;
  /** Receives the events that the worker posts. */
  readonly onEvent: (event: E) => void;
  /** Called once per death, after all pending calls have been rejected. */
  readonly onDeath: (death: WorkerDeath, error: Error) => void;
}

/**
 * Returns the delay before a replacement starts: 0.1 s after the first death, doubled for each further one, at most 30 s.
 *
 * @param deaths - Deaths in a row, from 1.
 */
export function restartDelayMs(deaths: number): number {
  return Math.min(MAX_DELAY_MS, MIN_DELAY_MS * 2 ** (deaths - 1));
}

/** Caller of {@link SupervisedWorker.running} that waits for the replacement. */
interface Waiter<M extends Methods, E> {
  readonly resolve: (client: WorkerClient<M, E>) => void;
  readonly reject: (error: unknown) => void;
}

/** Starts a worker with the methods `M` and the events `E`, and restarts it when it dies. */
export class SupervisedWorker<M extends Methods, E> {
  readonly #options: SupervisorOptions<E>;
  readonly #waiters = new Set<Waiter<M, E>>();
  /** Worker that was started last, dead or alive. */
  #last: WorkerClient<M, E> | null = null;
  /** The same worker while it runs; null after its death. */
  #client: WorkerClient<M, E> | null = null;
  /** Timer of the next replacement. */
  #timer: NodeJS.Timeout | undefined;
  /** Time of the last start, on the clock of `performance.now`. */
  #startedMs = 0;
  /** Time of the next replacement, on the same clock. */
  #restartsAtMs = 0;
  /** Deaths without an uptime of {@link STABLE_MS} in between. */
  #deathsInARow = 0;
  #restarts = 0;
  #isClosed = false;

  constructor(options: SupervisorOptions<E>) {
    this.#options = options;
    this.#start();
  }

  /** Running worker; null while the replacement waits to start. */
  get client(): WorkerClient<M, E> | null {
    return this.#client;
  }

  /** Number of replacements since the first start. Identifies the incarnation of the worker; earlier incarnations have lost their state. */
  get restarts(): number {
    return this.#restarts;
  }

  /** Returns the state of the worker, for `Engine.workers`. */
  statusAs(role: WorkerStatus["role"]): WorkerStatus {
    const isRunning = this.#client !== null;
    const restartsInMs = isRunning ? 0 : Math.max(0, Math.ceil(this.#restartsAtMs - performance.now()));
    return { name: this.#options.name, role, state: isRunning ? "running" : "restarting", restarts: this.#restarts, restartsInMs };
  }

  /**
   * Returns the running worker.
   *
   * @throws UnavailableError `E_UNAVAILABLE` while the replacement waits to start.
   * @throws EngineError `E_ENGINE` after {@link close}.
   */
  require(): WorkerClient<M, E> {
    if (this.#client !== null) return this.#client;
    if (this.#isClosed) throw new EngineError("The engine is closed");
    throw new UnavailableError(`The engine's worker ${this.#options.name} died and is being restarted; send the request again`);
  }

  /**
   * Waits until the worker runs.
   *
   * @throws EngineError `E_ENGINE` after {@link close}; an abort rejects with the signal's reason.
   */
  async running(signal?: AbortSignal): Promise<WorkerClient<M, E>> {
    signal?.throwIfAborted();
    if (this.#client !== null) return this.#client;
    if (this.#isClosed) throw new EngineError("The engine is closed");
    let waiter: Waiter<M, E> | undefined;
    let removeListener: (() => void) | undefined;
    // A pending restart keeps the process alive only while a caller waits for it.
    this.#timer?.ref();
    try {
      return await new Promise<WorkerClient<M, E>>((resolve, reject) => {
        waiter = { resolve, reject };
        this.#waiters.add(waiter);
        removeListener = onceAborted(signal, () => reject(signal!.reason as Error));
      });
    } finally {
      if (waiter) this.#waiters.delete(waiter);
      if (this.#waiters.size === 0) this.#timer?.unref();
      removeListener?.();
    }
  }

  /** Waits for earlier calls and for the exit of the worker. No further replacement starts. */
  async close(): Promise<void> {
    this.#isClosed = true;
    clearTimeout(this.#timer);
    for (const { reject } of this.#waiters) reject(new EngineError("The engine is closed"));
    await this.#last?.close();
    this.#client = null;
  }

  #start(): void {
    const { spawn, onEvent } = this.#options;
    this.#startedMs = performance.now();
    const client = new WorkerClient<M, E>(spawn(), { onEvent, onDeath: (error) => this.#onDeath(client, error) });
    this.#last = client;
    this.#client = client;
    for (const { resolve } of this.#waiters) resolve(client);
  }

  #onDeath(client: WorkerClient<M, E>, error: Error): void {
    this.#client = null;
    if (this.#isClosed) return;
    this.#deathsInARow = performance.now() - this.#startedMs >= STABLE_MS ? 1 : this.#deathsInARow + 1;
    const delayMs = restartDelayMs(this.#deathsInARow);
    this.#restartsAtMs = performance.now() + delayMs;
    this.#options.onDeath({ worker: this.#options.name, message: error.message, restartsInMs: delayMs }, error);
    // The death is reported when the worker fails, before its thread or process has ended.
    this.#timer = setTimeout(() => void client.exited.then(() => this.#restart()), delayMs);
    if (this.#waiters.size === 0) this.#timer.unref();
  }

  #restart(): void {
    if (this.#isClosed) return;
    this.#restarts++;
    this.#start();
  }
}
