/** Run directories that the dashboard shows: search below the roots, and polling of running runs for subscribers. */
import { resolve } from "node:path";
import { NotFoundError } from "../../base/errors.ts";
import { findRunsBelow } from "../../run/find-runs.ts";
import { RunReader } from "./run-reader.ts";

/** Default interval in milliseconds at which the files of running and watched runs are checked. */
const POLL_MS = 250;
/** Min milliseconds between two searches of the roots for new and removed runs. */
const SCAN_MS = 500;
/** Min ratio of the time between two searches to the duration of a search, so that large roots are searched less often. */
const SCAN_PAUSE = 20;

/** Change of the list of runs. */
export interface RunChanges {
  /** Runs that are new or have recorded something. */
  readonly changed: readonly RunReader[];
  /** Ids of the runs without a directory: it was deleted. */
  readonly removed: readonly string[];
}

/** Subscriber to changes of runs. */
export interface RunSubscriber {
  /** Ids of the runs that each poll checks even if they do not run. */
  readonly watched: ReadonlySet<string>;
  readonly onChange: (changes: RunChanges) => void;
}

/**
 * Run directories below some roots.
 *
 * Changes are found by polling, only while there is a subscriber: the sizes of two files per running run in each poll. Notifications of the
 * file system do not exist on network file systems, where a poll would be needed anyway.
 */
export class Runs {
  readonly #roots: Set<string>;
  #readers = new Map<string, RunReader>();
  readonly #subscribers = new Set<RunSubscriber>();
  readonly #pollMs: number;
  /** Timer of the next poll; undefined without subscribers, and while a poll runs. */
  #pollTimer: NodeJS.Timeout | undefined;
  #isPolling = false;
  /** Time of the next search for new runs, in milliseconds of `performance.now()`. */
  #nextScanMs = 0;

  constructor(roots: readonly string[], pollMs = POLL_MS) {
    this.#roots = new Set(roots.map((root) => resolve(root)));
    this.#pollMs = pollMs;
  }

  /** Adds a directory to search for runs. */
  addRoot(path: string): void {
    this.#roots.add(resolve(path));
  }

  /** Searches the roots and returns every run as of now, the last written first. */
  async list(): Promise<RunReader[]> {
    await this.#scan();
    const updated = (reader: RunReader) => reader.summary().updated ?? "";
    return [...this.#readers.values()].sort((a, b) => updated(b).localeCompare(updated(a), "en"));
  }

  /** Returns a run as of now. @throws NotFoundError `E_NOT_FOUND` for an unknown id. */
  async get(id: string): Promise<RunReader> {
    if (!this.#readers.has(id)) await this.#scan();
    const reader = this.#readers.get(id);
    if (reader === undefined) {
      const roots = [...this.#roots].join(", ");
      throw new NotFoundError(`There is no run ${id} in ${roots}. Open its directory with \`whetstone ui <dir>\``, { param: "run" });
    }
    await this.#update([reader]);
    return reader;
  }

  /** Reports changes until the returned function is called. */
  subscribe(subscriber: RunSubscriber): () => void {
    this.#subscribers.add(subscriber);
    this.#schedule();
    return () => {
      this.#subscribers.delete(subscriber);
      if (this.#subscribers.size > 0) return;
      clearTimeout(this.#pollTimer);
      this.#pollTimer = undefined;
    };
  }

  /**
   * Starts a poll after the interval, if there are subscribers and no poll is scheduled or running: a slow file system is not asked faster
   * than it answers.
   */
  #schedule(): void {
    if (this.#subscribers.size === 0 || this.#pollTimer !== undefined || this.#isPolling) return;
    this.#pollTimer = setTimeout(() => void this.#poll(), this.#pollMs);
    this.#pollTimer.unref();
  }

  /** Searches the roots if a search is due, else checks the active runs; then schedules the next poll. */
  async #poll(): Promise<void> {
    this.#pollTimer = undefined;
    this.#isPolling = true;
    try {
      if (performance.now() >= this.#nextScanMs) await this.#scan();
      else await this.#update(this.#active(), { update: (reader) => reader.poll() });
    } finally {
      this.#isPolling = false;
      this.#schedule();
    }
  }

  /** Returns the runs that each poll checks. */
  #active(): RunReader[] {
    const isWatched = (id: string) => [...this.#subscribers].some(({ watched }) => watched.has(id));
    return [...this.#readers.values()].filter(({ isRunning, run }) => isRunning || isWatched(run.id));
  }

  /** Searches the roots for new and removed runs, then refreshes all runs. */
  async #scan(): Promise<void> {
    const startMs = performance.now();
    const found = await findRunsBelow([...this.#roots]);
    const previousReaders = this.#readers;
    this.#readers = new Map(found.map((run) => [run.id, previousReaders.get(run.id) ?? new RunReader(run)]));
    const removed = [...previousReaders.keys()].filter((id) => !this.#readers.has(id));
    await this.#update([...this.#readers.values()], { removed });
    const endMs = performance.now();
    this.#nextScanMs = endMs + Math.max(SCAN_MS, SCAN_PAUSE * (endMs - startMs));
  }

  /**
   * Refreshes runs and reports the changed ones, also if a request and not the poll caused the refresh. One run after the other: the work
   * is parsing, which has one thread.
   *
   * @param options - `update`: refreshes a run and returns whether it has changed. `removed`: ids to report as removed.
   */
  async #update(
    readers: readonly RunReader[],
    {
      update = (reader) => reader.refresh(),
      removed = [],
    }: { readonly update?: (reader: RunReader) => Promise<boolean>; readonly removed?: readonly string[] } = {},
  ): Promise<void> {
    const changed: RunReader[] = [];
    for (const reader of readers) if (await update(reader)) changed.push(reader);
    if (changed.length === 0 && removed.length === 0) return;
    for (const { onChange } of this.#subscribers) onChange({ changed, removed });
  }
}
