/** Sessions: their rows in the database, and the requests that run now. */
import { randomUUID } from "node:crypto";
import { ForbiddenError, NotFoundError } from "../../errors.ts";
import type { CreateSessionRequest } from "../../schema/index.ts";
import { Lru } from "../../util/lru.ts";
import { onceAborted } from "../chat/request/client-signal.ts";
import { checkMetrics } from "../../trajectory/trajectory.ts";
import { deleteSession, findSession, findSessionByKey, insertSession, updateSession, type TurnKey } from "../store/sessions.ts";
import type { SessionRow, Store } from "../store/tables.ts";
import { createSessionKey } from "./keys.ts";
import { RunningTurn } from "./running-turn.ts";
import { TurnWriter } from "./turn-writer.ts";

/** Milliseconds for which sampling continues after all clients of a request have disconnected; longer than the delay before a retry. */
const RETRY_GRACE_MS = 10_000;
/** Max sessions whose keys are remembered. */
const MAX_KEYS = 10_000;
/** Max failed requests that are remembered, so that their repetitions are sampled. */
const MAX_FAILURES = 10_000;
const DEFAULTS = { maxRequests: 1000, maxSeconds: 3600, expiresInSeconds: 86_400 };

/** Requests of one session that run now. */
interface Activity {
  lastSeq: number;
  readonly running: Set<RunningTurn>;
  isFinishing: boolean;
}

export class Sessions {
  readonly store: Store;
  readonly writer: TurnWriter;
  readonly #graceMs: number;
  /** Sessions by key, so that authorization needs no query. */
  readonly #keys = new Lru<string, Pick<SessionRow, "id" | "expires_at">>({ maxEntries: MAX_KEYS });
  readonly #waiting = new Map<string, Set<() => void>>();
  #isClosed = false;
  readonly #activities = new Map<string, Activity>();
  /** Number of failed attempts by request, since their last repetition. */
  readonly #failures = new Lru<string, number>({ maxEntries: MAX_FAILURES });

  /** @param graceMs - Milliseconds for which sampling continues without clients. */
  constructor(store: Store, graceMs = RETRY_GRACE_MS) {
    this.store = store;
    this.writer = new TurnWriter(store);
    this.#graceMs = graceMs;
  }

  /** Returns the id of the session with a key; undefined for an unknown, expired or deleted one. */
  async idOfKey(key: string): Promise<string | undefined> {
    const known = this.#keys.get(key);
    if (known !== undefined) return known.expires_at > new Date().toISOString() ? known.id : undefined;
    const row = await findSessionByKey(this.store, key);
    if (row !== undefined) this.#keys.set(key, { id: row.id, expires_at: row.expires_at });
    return row?.id;
  }

  /** Creates a session. */
  async create(request: CreateSessionRequest): Promise<SessionRow> {
    const now = Date.now();
    const after = (seconds: number): string => new Date(now + seconds * 1000).toISOString();
    const row: SessionRow = {
      id: randomUUID(),
      key: createSessionKey(),
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
    return row;
  }

  /** Returns a session. @throws NotFoundError `E_NOT_FOUND` if it does not exist, has expired or was deleted. */
  async get(id: string): Promise<SessionRow> {
    const row = await findSession(this.store, id);
    if (row !== undefined) return row;
    throw new NotFoundError(`Session '${id}' does not exist, has expired or was deleted. Create one with POST /v1/preview/sessions`, {
      param: "session_id",
    });
  }

  /** Sets the reward of a session and adds metrics. */
  async score(
    id: string,
    { reward, metrics }: { readonly reward?: number | null | undefined; readonly metrics?: Metrics | null | undefined },
  ): Promise<SessionRow> {
    checkMetrics(metrics ?? {});
    return updateSession(this.store, (await this.get(id)).id, (row) => ({
      ...(reward === undefined || reward === null ? {} : { reward }),
      ...(metrics === undefined || metrics === null
        ? {}
        : { metrics: JSON.stringify({ ...(JSON.parse(row.metrics) as Metrics), ...metrics }) }),
    }));
  }

  /** Finishes a session: cancels its running requests and waits until they have ended. Has no effect on a finished session. */
  async finish(id: string): Promise<SessionRow> {
    const row = await this.get(id);
    if (row.finished_at !== null) return row;
    const activity = this.#activity(row.id);
    activity.isFinishing = true;
    try {
      await updateSession(this.store, row.id, () => ({ finished_at: new Date().toISOString() }));
      await this.#cancel(activity, finished());
    } finally {
      this.#drop(row.id, activity);
      this.#wake(row.id);
    }
    return this.get(id);
  }

  /** Waits until a session is no longer open, the time has passed, the signal is aborted or the service shuts down. */
  async untilOver(id: string, ms: number, signal: AbortSignal): Promise<void> {
    const row = await this.get(id);
    const remainingMs = new Date(row.open_until).getTime() - Date.now();
    if (row.finished_at !== null || remainingMs <= 0 || this.#isClosed) return;
    const { promise, resolve } = withResolve();
    const waiting = this.#waiting.get(row.id) ?? new Set();
    this.#waiting.set(row.id, waiting.add(resolve));
    const timer = setTimeout(resolve, Math.min(ms, remainingMs)).unref();
    const removeListener = onceAborted(signal, resolve);
    await promise;
    clearTimeout(timer);
    removeListener();
    waiting.delete(resolve);
    if (waiting.size === 0) this.#waiting.delete(row.id);
  }

  /** Ends all calls of {@link untilOver}. Turns that still run are recorded. */
  close(): void {
    this.writer.close();
    this.#isClosed = true;
    for (const id of this.#waiting.keys()) this.#wake(id);
  }

  #wake(id: string): void {
    for (const resolve of this.#waiting.get(id) ?? []) resolve();
  }

  /** Deletes a session and its turns; running requests are cancelled. Returns the number of turns. */
  async delete(id: string): Promise<number> {
    const row = await this.get(id);
    const activity = this.#activity(row.id);
    activity.isFinishing = true;
    this.#keys.delete(row.key);
    try {
      await this.#cancel(activity, finished());
      return (await deleteSession(this.store, row.id)) ?? 0;
    } finally {
      this.#drop(row.id, activity);
      this.#wake(row.id);
    }
  }

  /**
   * Starts a turn.
   *
   * @param session - Current row of the session.
   * @throws ForbiddenError `E_FORBIDDEN` if the session is finished or at a limit.
   */
  begin(session: SessionRow, key: TurnKey): RunningTurn {
    requireOpen(session);
    const activity = this.#activity(session.id);
    if (activity.isFinishing) throw finished();
    const { max_requests: max } = session;
    if (session.requests + activity.running.size >= max) {
      this.#drop(session.id, activity);
      throw new ForbiddenError(`The session has made its ${max} requests. Create another session, or raise \`max_requests\``, {
        param: "max_requests",
      });
    }
    activity.lastSeq = Math.max(activity.lastSeq, session.last_seq) + 1;
    const turn = new RunningTurn(key, activity.lastSeq, this.#graceMs);
    activity.running.add(turn);
    const remainingMs = new Date(session.open_until).getTime() - Date.now();
    const timer = setTimeout(() => turn.cancel(timedOut(session)), remainingMs).unref();
    const end = (): void => {
      clearTimeout(timer);
      activity.running.delete(turn);
      this.#drop(session.id, activity);
    };
    turn.recorded.then(end, () => {
      const name = nameOf(key);
      this.#failures.set(name, (this.#failures.get(name) ?? 0) + 1);
      end();
    });
    return turn;
  }

  /** Whether a repetition follows a failed attempt, and must be sampled. Each failure counts for one repetition. */
  takeFailure(key: TurnKey): boolean {
    const name = nameOf(key);
    const count = this.#failures.get(name) ?? 0;
    if (count > 0) this.#failures.set(name, count - 1);
    return count > 0;
  }

  /** Returns the running turn that a request repeats: one without clients, otherwise the newest; undefined without any. */
  findRunning(key: TurnKey): RunningTurn | undefined {
    const turns = [...(this.#activities.get(key.session_id)?.running ?? [])].filter((turn) => nameOf(turn.key) === nameOf(key));
    return turns.find(({ clients }) => clients === 0) ?? turns.at(-1);
  }

  async #cancel({ running }: Activity, reason: ForbiddenError): Promise<void> {
    const turns = [...running];
    for (const turn of turns) turn.cancel(reason);
    await Promise.allSettled(turns.map(({ recorded }) => recorded));
  }

  #activity(id: string): Activity {
    let activity = this.#activities.get(id);
    if (activity === undefined) this.#activities.set(id, (activity = { lastSeq: 0, running: new Set(), isFinishing: false }));
    return activity;
  }

  #drop(id: string, activity: Activity): void {
    if (activity.running.size === 0) this.#activities.delete(id);
  }
}

function withResolve(): { readonly promise: Promise<void>; readonly resolve: () => void } {
  let resolve = (): void => {};
  const promise = new Promise<void>((done) => (resolve = done));
  return { promise, resolve };
}

type Metrics = Readonly<Record<string, number | boolean>>;

function nameOf({ session_id: id, dialect, digest }: TurnKey): string {
  return `${id} ${dialect} ${digest}`;
}

/** Checks that a session accepts requests. @throws ForbiddenError `E_FORBIDDEN` otherwise. */
export function requireOpen(session: SessionRow): void {
  if (session.finished_at !== null) throw finished();
  if (session.open_until <= new Date().toISOString()) throw timedOut(session);
}

function finished(): ForbiddenError {
  return new ForbiddenError("The session is finished: it accepts no more requests. Create another session");
}

function timedOut({ open_until: until }: SessionRow): ForbiddenError {
  return new ForbiddenError(`The session accepted requests until ${until}. Create another session, or raise \`max_seconds\``, {
    param: "max_seconds",
  });
}
