import { resolve } from "node:path";
import { NotFoundError } from "../errors.ts";
import { findRuns } from "./find-runs.ts";
import { RunReader } from "./run-reader.ts";

/** Milliseconds between two looks at the files of running and watched runs. */
const POLL_MS = 400;
/** Number of looks at the active runs per look at all roots. */
const POLLS_PER_SCAN = 5;

/** Change of the list of runs. */
export interface RunChanges {
  /** Runs that are new or have recorded something. */
  readonly changed: readonly RunReader[];
  /** Ids of the runs whose directories are gone. */
  readonly removed: readonly string[];
}

/** Subscriber to changes of runs. */
export interface RunSubscriber {
  /** Ids of the runs to look at in each poll even if they do not run. */
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
  #timer: NodeJS.Timeout | undefined;
  #polls = 0;

  constructor(roots: readonly string[]) {
    this.#roots = new Set(roots.map((root) => resolve(root)));
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
    await reader.refresh();
    return reader;
  }

  /** Reports changes until the returned function is called. */
  subscribe(subscriber: RunSubscriber): () => void {
    this.#subscribers.add(subscriber);
    this.#schedule();
    return () => {
      this.#subscribers.delete(subscriber);
      if (this.#subscribers.size === 0) clearTimeout(this.#timer);
    };
  }

  /** The next poll starts only after the last one has ended, so that a slow file system is not asked faster than it answers. */
  #schedule(): void {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => {
      void this.#poll().finally(() => {
        if (this.#subscribers.size > 0) this.#schedule();
      });
    }, POLL_MS);
    this.#timer.unref();
  }

  async #poll(): Promise<void> {
    const isScan = ++this.#polls % POLLS_PER_SCAN === 0;
    const changes = isScan ? await this.#scan() : { changed: await refreshAll(this.#active()), removed: [] };
    if (changes.changed.length === 0 && changes.removed.length === 0) return;
    for (const { onChange } of this.#subscribers) onChange(changes);
  }

  #active(): RunReader[] {
    const isWatched = (id: string) => [...this.#subscribers].some(({ watched }) => watched.has(id));
    return [...this.#readers.values()].filter(({ isRunning, run }) => isRunning || isWatched(run.id));
  }

  async #scan(): Promise<RunChanges> {
    const found = await findRuns([...this.#roots]);
    const before = this.#readers;
    this.#readers = new Map(found.map((run) => [run.id, before.get(run.id) ?? new RunReader(run)]));
    const removed = [...before.keys()].filter((id) => !this.#readers.has(id));
    return { changed: await refreshAll([...this.#readers.values()]), removed };
  }
}

/** Refreshes runs and returns the changed ones. One after the other: the work is parsing, which has one thread. */
async function refreshAll(readers: readonly RunReader[]): Promise<RunReader[]> {
  const changed: RunReader[] = [];
  for (const reader of readers) if (await reader.refresh()) changed.push(reader);
  return changed;
}
