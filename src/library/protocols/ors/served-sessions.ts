/** Sessions of a server of the Open Reward Standard: their start, idle timeout and end. `routes.ts` calls them. */
import PQueue from "p-queue";
import { scenarioAt } from "../episode/server.ts";
import { ServedEpisode } from "../episode/served-episode.ts";
import type { ToolEnvironment } from "../episode/tool-environment.ts";

/** Interval of the search for idle sessions, in milliseconds. */
const IDLE_CHECK_INTERVAL_MS = 5000;

/** Names of the splits. */
export type SplitName = "train" | "eval";

/** Limits of the sessions. */
export interface SessionLimits {
  /** Maximum number of sessions at a time. */
  readonly maxSessions: number;
  /** Time without a request after which a session ends, in milliseconds. */
  readonly idleTimeoutMs: number;
  /** Number of tasks per split. */
  readonly counts: Readonly<Record<SplitName, number>>;
}

/** Session of one client, which plays one task. */
export interface ServedOrsSession<S> {
  readonly scenario: S;
  readonly episode: ServedEpisode<S>;
  /** JSON results of operations by their `task_id`, for clients that resume a broken stream. */
  readonly results: Map<string, Promise<string>>;
  /** Queue of operations, one at a time. */
  readonly queue: PQueue;
  /** Time of the last request, by `performance.now()`. */
  usedAtMs: number;
}

/** Sessions of a server, from `/create` until `/delete` or the idle timeout. */
export class ServedSessions<S> {
  readonly #environment: ToolEnvironment<S>;
  /** Sessions with a started episode, by id. */
  readonly #sessions = new Map<string, ServedOrsSession<S>>();
  readonly #limits: SessionLimits;
  readonly #timer: NodeJS.Timeout;
  /** Ids of sessions that are being created. */
  readonly #starting = new Set<string>();
  #isClosed = false;

  constructor(environment: ToolEnvironment<S>, limits: SessionLimits) {
    this.#environment = environment;
    this.#limits = limits;
    this.#timer = setInterval(() => this.#endIdle(), Math.min(IDLE_CHECK_INTERVAL_MS, limits.idleTimeoutMs)).unref();
  }

  /** Returns the number of tasks of a split. */
  count(split: SplitName): number {
    return this.#limits.counts[split];
  }

  /** Returns a session and restarts its idle timeout; undefined if it does not exist. */
  get(id: string): ServedOrsSession<S> | undefined {
    const session = this.#sessions.get(id);
    if (session !== undefined) session.usedAtMs = performance.now();
    return session;
  }

  /** Whether a session exists or is being created. */
  has(id: string): boolean {
    return this.#sessions.has(id) || this.#starting.has(id);
  }

  /** Whether one more session would exceed the limit. */
  get isFull(): boolean {
    return this.#sessions.size + this.#starting.size >= this.#limits.maxSessions;
  }

  /** Starts the episode of a session. @throws the errors of `ServedEpisode.start`. */
  async start(id: string, split: SplitName, index: number): Promise<void> {
    this.#starting.add(id);
    try {
      const scenario = scenarioAt(this.#environment.scenarios[split], index, split);
      const episode = await ServedEpisode.start(this.#environment, scenario);
      const queue = new PQueue({ concurrency: 1 });
      this.#sessions.set(id, { scenario, episode, results: new Map(), queue, usedAtMs: performance.now() });
      // The server may have been closed while the episode started.
      if (this.#isClosed) await this.end(id);
    } finally {
      this.#starting.delete(id);
    }
  }

  /** Ends a session, if it exists. */
  async end(id: string): Promise<void> {
    const session = this.#sessions.get(id);
    this.#sessions.delete(id);
    await session?.episode.close();
  }

  /** Ends all sessions. */
  async close(): Promise<void> {
    this.#isClosed = true;
    clearInterval(this.#timer);
    await Promise.all([...this.#sessions.keys()].map((id) => this.end(id)));
  }

  /** Ends the sessions without a request since the idle timeout. */
  #endIdle(): void {
    const idleSinceMs = performance.now() - this.#limits.idleTimeoutMs;
    for (const [id, { usedAtMs }] of this.#sessions) if (usedAtMs < idleSinceMs) this.end(id).catch(() => undefined);
  }
}
