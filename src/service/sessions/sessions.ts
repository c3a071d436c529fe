/**
 * Sessions: their rows in the database, and the turns that run now. A session is a series of requests of an agent with one key; a turn is one
 * of these requests with its answer.
 *
 * A turn starts with `begin`, may reserve tokens with `reserve`, and ends with `record` or `RunningTurn.fail`. While turns run, the row of
 * their session is behind: `Activity` and the counts in memory have the present state.
 */
import { randomUUID } from "node:crypto";
import { ForbiddenError } from "../../base/errors.ts";
import type { CreateSessionRequest } from "../../base/schema/index.ts";
import { Lru } from "../../base/util/lru.ts";
import { getOrInsert } from "../../base/util/values.ts";
import { checkMetrics } from "../../base/trajectory/trajectory.ts";
import {
  deleteSession,
  getSession,
  insertSession,
  updateSession,
  type NewTurn,
  type SessionCounts,
  type TurnKey,
} from "../store/sessions.ts";
import type { SessionRow, Store } from "../store/tables.ts";
import { createSessionKey, hashSessionKey } from "./keys.ts";
import { KnownSessions } from "./known-sessions.ts";
import { OverWaits } from "./over-waits.ts";
import { RunningTurn } from "./running-turn.ts";
import { TokenReservations, type TokenDemand } from "./token-reservations.ts";
import { TurnWriter } from "./turn-writer.ts";

/** Milliseconds for which sampling continues after all clients of a request have disconnected; longer than the delay before a retry. */
const RETRY_GRACE_MS = 10_000;
/** Max sessions with counts in memory; far more than can record turns while one of their requests is being read. */
const MAX_COUNTS = 10_000;
/** Max failed requests that are remembered, so that their repetitions are sampled. */
const MAX_FAILURES = 10_000;
/** Limits of a session that its creation does not set. */
const DEFAULTS = { maxRequests: 1000, maxSeconds: 3600, expiresInSeconds: 86_400 };

/** Owner of a new session, and the model that it samples. */
export type SessionOwner = Pick<SessionRow, "entity" | "model_id">;

/** Requests of one session that run now. */
interface Activity {
  /** Greatest `seq` that a turn has got. */
  lastSeq: number;
  readonly running: Set<RunningTurn>;
  readonly reservations: TokenReservations;
  /** Number of calls that finish or delete the session now. No turn may begin during one. */
  endings: number;
}

/** Sessions of a service. */
export class StoredSessions {
  readonly store: Store;
  readonly #writer: TurnWriter;
  readonly #graceMs: number;
  /** Sessions by their keys. */
  readonly known: KnownSessions;
  /** Calls of {@link untilOver}. */
  readonly #overWaits = new OverWaits();
  /** Sessions that run requests, or are being finished or deleted. */
  readonly #activities = new Map<string, Activity>();
  /** Newest counts by session: a request's row can be older than the end of another request. */
  readonly #counts = new Lru<string, SessionCounts>({ maxEntries: MAX_COUNTS });
  /** Number of failed attempts by request, since their last repetition. */
  readonly #failures = new Lru<string, number>({ maxEntries: MAX_FAILURES });

  /** @param graceMs - Milliseconds for which sampling continues without clients. */
  constructor(store: Store, graceMs = RETRY_GRACE_MS) {
    this.store = store;
    this.known = new KnownSessions(store);
    this.#writer = new TurnWriter(store);
    this.#graceMs = graceMs;
  }

  /** Creates a session. Its key is returned only here. */
  async create(request: CreateSessionRequest, owner: SessionOwner): Promise<{ readonly row: SessionRow; readonly key: string }> {
    const now = Date.now();
    const after = (seconds: number): string => new Date(now + seconds * 1000).toISOString();
    const key = createSessionKey();
    const row: SessionRow = {
      id: randomUUID(),
      key: hashSessionKey(key),
      ...owner,
      model: request.model,
      sampling_defaults: JSON.stringify(request.sampling_defaults ?? {}),
      sampling_overrides: JSON.stringify(request.sampling_overrides ?? {}),
      metadata: JSON.stringify(request.metadata ?? {}),
      reward: null,
      metrics: "{}",
      max_requests: request.max_requests ?? DEFAULTS.maxRequests,
      max_tokens: request.max_tokens ?? null,
      requests: 0,
      tokens: 0,
      last_seq: 0,
      created_at: after(0),
      open_until: after(request.max_seconds ?? DEFAULTS.maxSeconds),
      expires_at: after(request.expires_in_seconds ?? DEFAULTS.expiresInSeconds),
      finished_at: null,
    };
    await insertSession(this.store, row);
    return { row, key };
  }

  /** Sets the reward of a session and adds metrics. */
  async score(
    { id }: SessionRow,
    { reward, metrics }: { readonly reward?: number | null | undefined; readonly metrics?: Metrics | null | undefined },
  ): Promise<SessionRow> {
    checkMetrics(metrics ?? {});
    return updateSession(this.store, id, (row) => ({
      ...(typeof reward === "number" ? { reward } : {}),
      ...(metrics ? { metrics: JSON.stringify({ ...(JSON.parse(row.metrics) as Metrics), ...metrics }) } : {}),
    }));
  }

  /** Finishes a session: cancels its running requests and waits until they have ended. Has no effect on a finished session. */
  async finish(row: SessionRow): Promise<SessionRow> {
    if (row.finished_at !== null) return row;
    await this.#whileEnding(row.id, async (activity) => {
      await updateSession(this.store, row.id, () => ({ finished_at: new Date().toISOString() }));
      await this.#cancel(activity, finishedError());
    });
    return getSession(this.store, row.id);
  }

  /** Waits until a session is no longer open, but at most `ms` milliseconds, and not after the signal aborts or the service shuts down. */
  async untilOver(row: SessionRow, ms: number, signal: AbortSignal): Promise<void> {
    const remainingMs = new Date(row.open_until).getTime() - Date.now();
    if (row.finished_at !== null || remainingMs <= 0) return;
    await this.#overWaits.wait(row.id, Math.min(ms, remainingMs), signal);
  }

  /** Ends all calls of {@link untilOver}. Turns that still run are recorded. */
  close(): void {
    this.#writer.close();
    this.#overWaits.close();
  }

  /** Deletes a session and its turns; running requests are cancelled. Returns the number of turns. */
  async delete(row: SessionRow): Promise<number> {
    this.known.forget(row);
    return this.#whileEnding(row.id, async (activity) => {
      await this.#cancel(activity, finishedError());
      return (await deleteSession(this.store, row.id)) ?? 0;
    });
  }

  /** Runs `finishOrDelete`, during which no turn of the session may begin. If it fails, the session is as open as before. */
  async #whileEnding<T>(id: string, finishOrDelete: (activity: Activity) => Promise<T>): Promise<T> {
    const activity = this.#activityOf(id);
    activity.endings++;
    try {
      return await finishOrDelete(activity);
    } finally {
      activity.endings--;
      this.#dropIfIdle(id, activity);
      this.#overWaits.notify(id);
    }
  }

  /**
   * Starts a turn.
   *
   * @param session - Current row of the session.
   * @throws ForbiddenError `E_FORBIDDEN` if the session is finished or at a limit.
   */
  begin(session: SessionRow, key: TurnKey): RunningTurn {
    requireOpenSession(session);
    const activity = this.#activityOf(session.id);
    if (activity.endings > 0) throw finishedError();
    const { max_requests: maxRequests } = session;
    const { requests, last_seq: lastSeq } = this.#countsOf(session);
    if (requests + activity.running.size >= maxRequests) {
      this.#dropIfIdle(session.id, activity);
      throw new ForbiddenError(`The session has made its ${maxRequests} requests. Create another session, or raise \`max_requests\``, {
        param: "max_requests",
      });
    }
    activity.lastSeq = Math.max(activity.lastSeq, lastSeq) + 1;
    const turn = new RunningTurn(key, activity.lastSeq, this.#graceMs);
    this.#track(turn, session, activity);
    return turn;
  }

  /** Adds a turn to the activity of its session until it ends, cancels it when the session closes, and counts its failure. */
  #track(turn: RunningTurn, session: SessionRow, activity: Activity): void {
    activity.running.add(turn);
    const remainingMs = new Date(session.open_until).getTime() - Date.now();
    const timer = setTimeout(() => turn.cancel(timedOutError(session)), remainingMs).unref();
    const untrack = (): void => {
      clearTimeout(timer);
      activity.running.delete(turn);
      activity.reservations.release(turn.reservedTokens);
      this.#dropIfIdle(session.id, activity);
    };
    turn.recorded.then(untrack, () => {
      const id = requestIdOf(turn.key);
      this.#failures.set(id, (this.#failures.get(id) ?? 0) + 1);
      untrack();
    });
  }

  /**
   * Reserves output tokens for a turn before it is sampled. Waits while the demand and the reservations of other turns exceed the limit.
   * The end of the turn releases the tokens that it did not sample.
   *
   * @returns Max tokens of each choice; null for a session without a limit.
   * @throws ForbiddenError `E_FORBIDDEN` if the session has no tokens left.
   */
  async reserve(session: SessionRow, turn: RunningTurn, demand: TokenDemand): Promise<number | null> {
    const { id, max_tokens: maxTokens } = session;
    if (maxTokens === null) return null;
    const remaining = (): number => maxTokens - this.#countsOf(session).tokens;
    const granted = await this.#activityOf(id).reservations.reserve(demand, remaining, turn.signal);
    if (granted === null) {
      throw new ForbiddenError(
        `The session has sampled ${maxTokens - remaining()} of its ${maxTokens} tokens. Create another session, or raise \`max_tokens\``,
        { param: "max_tokens" },
      );
    }
    turn.reservedTokens = granted * demand.choices;
    return granted;
  }

  /** Records a turn and ends it. @throws NoSpaceError `E_NO_SPACE` if the disk is full. */
  async record(turn: RunningTurn, recorded: NewTurn): Promise<void> {
    const counts = await this.#writer.record(recorded);
    if (counts !== null) this.#counts.set(turn.key.session_id, counts);
    turn.succeed(recorded.row);
  }

  /** Returns the newest counts of a session: of its row, or of a turn that was recorded after the row was read. */
  #countsOf(session: SessionRow): SessionCounts {
    const known = this.#counts.get(session.id);
    return known === undefined || known.requests < session.requests ? session : known;
  }

  /** Removes one failure of a request. Returns whether there was one: the repetition follows a failed attempt, and must be sampled. */
  takeFailure(key: TurnKey): boolean {
    const id = requestIdOf(key);
    const count = this.#failures.get(id) ?? 0;
    if (count > 0) this.#failures.set(id, count - 1);
    return count > 0;
  }

  /** Returns the running turn that a request repeats: one without clients, otherwise the newest; undefined without any. */
  findRunning(key: TurnKey): RunningTurn | undefined {
    const running = [...(this.#activities.get(key.session_id)?.running ?? [])];
    const turns = running.filter((turn) => requestIdOf(turn.key) === requestIdOf(key));
    return turns.find(({ clients }) => clients === 0) ?? turns.at(-1);
  }

  /** Cancels all turns and waits until they have ended. */
  async #cancel({ running }: Activity, reason: ForbiddenError): Promise<void> {
    const turns = [...running];
    for (const turn of turns) turn.cancel(reason);
    await Promise.allSettled(turns.map(({ recorded }) => recorded));
  }

  /** Returns the activity of a session; creates it if it is absent. */
  #activityOf(id: string): Activity {
    return getOrInsert(this.#activities, id, () => ({ lastSeq: 0, running: new Set(), reservations: new TokenReservations(), endings: 0 }));
  }

  /** Removes the activity of a session, unless one of its requests runs, or the session is being finished or deleted. */
  #dropIfIdle(id: string, activity: Activity): void {
    if (activity.running.size === 0 && activity.endings === 0) this.#activities.delete(id);
  }
}

type Metrics = Readonly<Record<string, number | boolean>>;

/** Returns a text that identifies a request and its repetitions. */
function requestIdOf({ session_id: id, dialect, digest }: TurnKey): string {
  return `${id} ${dialect} ${digest}`;
}

/** Checks that a session accepts requests. @throws ForbiddenError `E_FORBIDDEN` otherwise. */
export function requireOpenSession(session: SessionRow): void {
  if (session.finished_at !== null) throw finishedError();
  if (session.open_until <= new Date().toISOString()) throw timedOutError(session);
}

function finishedError(): ForbiddenError {
  return new ForbiddenError("The session is finished: it accepts no more requests. Create another session");
}

function timedOutError({ open_until: until }: SessionRow): ForbiddenError {
  return new ForbiddenError(`The session accepted requests until ${until}. Create another session, or raise \`max_seconds\``, {
    param: "max_seconds",
  });
}
