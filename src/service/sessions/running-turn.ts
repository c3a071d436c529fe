/** Request of a session from `StoredSessions.begin` until it is recorded or has failed. */
import { clientGone } from "../chat/request/client-signal.ts";
import { deferred } from "../../base/util/deferred.ts";
import { onceAborted } from "../../base/util/abort.ts";
import type { TurnKey } from "../store/sessions.ts";
import type { SessionTurnRow } from "../store/tables.ts";

/**
 * Request that is being sampled for one or more clients: the first one, and its repetitions.
 *
 * A disconnected client may be about to repeat its request. Sampling therefore continues for a grace period without clients, and is then
 * cancelled.
 */
export class RunningTurn {
  readonly key: TurnKey;
  /** Position of the turn in its session. */
  readonly seq: number;
  readonly #outcome = deferred<SessionTurnRow>();
  /** Recorded turn, once it is durable; rejects with the error of a failed request. */
  readonly recorded = this.#outcome.promise;
  /** Output tokens of the session that are reserved for the turn. */
  reservedTokens = 0;
  readonly #abort = new AbortController();
  readonly #graceMs: number;
  #clients = 0;
  /** Cancels sampling at the end of the grace period; null with a client. */
  #graceTimer: NodeJS.Timeout | null = null;
  /** Called when a repetition waits for the turn. The first client may have stopped reading a stream without closing it. */
  onJoin: () => void = () => {};

  /** @param graceMs - Milliseconds for which sampling continues without clients. */
  constructor(key: TurnKey, seq: number, graceMs: number) {
    this.key = key;
    this.seq = seq;
    this.#graceMs = graceMs;
    // Every caller handles the rejection of its own promise; without a waiting repetition nothing awaits this one.
    this.recorded.catch(() => {});
  }

  /** Aborted when the request must not continue. */
  get signal(): AbortSignal {
    return this.#abort.signal;
  }

  /** Number of connected clients. */
  get clients(): number {
    return this.#clients;
  }

  /** Cancels sampling. */
  cancel(reason: unknown): void {
    this.#abort.abort(reason);
  }

  /** Adds a client until its signal is aborted or the returned function is called. */
  attach(client: AbortSignal): () => void {
    this.#clients++;
    if (this.#graceTimer !== null) clearTimeout(this.#graceTimer);
    this.#graceTimer = null;
    let isAttached = true;
    const detach = (): void => {
      if (!isAttached) return;
      isAttached = false;
      removeListener();
      this.#clients--;
      if (this.#clients === 0) this.#graceTimer = setTimeout(() => this.cancel(clientGone()), this.#graceMs).unref();
    };
    // Deferred, because `onceAborted` calls the listener before it returns `removeListener` if the signal is already aborted.
    const removeListener = onceAborted(client, () => queueMicrotask(detach));
    return detach;
  }

  /** Ends the turn with its record. */
  succeed(row: SessionTurnRow): void {
    this.#end();
    this.#outcome.resolve(row);
  }

  /** Ends the turn with an error. */
  fail(error: unknown): void {
    this.#end();
    this.#outcome.reject(error);
  }

  #end(): void {
    // The number never returns to 0, so that a later disconnection starts no grace period.
    this.#clients = Infinity;
    if (this.#graceTimer !== null) clearTimeout(this.#graceTimer);
  }
}
