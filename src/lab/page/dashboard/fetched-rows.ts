/** Rows of a list of trajectories, fetched from the service in pages of one step each. */
import type { Page, TrajectoryRow } from "../../dashboard/api.ts";
import type { Split } from "../../../run/data.ts";

/** Rows of a page. */
export const PAGE_ROWS = 100;

/** Step of the list. */
export interface Segment {
  readonly split: Split;
  readonly step: number;
  /** Number of rows as far as known; the first page of the step corrects it. */
  readonly count: number;
}

/** Requests a page of a step, from 0. */
export type FetchPage = (segment: Segment, page: number, signal: AbortSignal) => Promise<Page<TrajectoryRow>>;

/** Listener for the pages of {@link FetchedRows}. */
interface Listener {
  /** Called after a page has arrived. */
  readonly onPage: () => void;
  /** Called after a request has failed. The page can then be loaded again. */
  readonly onFail: (error: Error) => void;
}

/**
 * Rows of one run and query as far as they were fetched. A list with another query has an object of its own, and closes the former one: a
 * late answer to the former query must not change the list.
 */
export class FetchedRows {
  readonly #fetchPage: FetchPage;
  readonly #listener: Listener;
  /** Pages by `split/step/page`; null while a page loads. */
  readonly #pages = new Map<string, readonly TrajectoryRow[] | null>();
  /** Number of rows by `split/step`, as the answers have it. */
  readonly #counts = new Map<string, number>();
  /** `count` of each segment when its pages were fetched, by `split/step`. */
  readonly #segmentCounts = new Map<string, number>();
  readonly #closing = new AbortController();

  constructor(fetchPage: FetchPage, listener: Listener) {
    this.#fetchPage = fetchPage;
    this.#listener = listener;
  }

  /** Forgets the pages of the steps that have grown since their pages were fetched. */
  forgetGrown(segments: readonly Segment[]): void {
    for (const segment of segments) {
      const name = nameOf(segment);
      if (this.#segmentCounts.get(name) === segment.count) continue;
      this.#segmentCounts.set(name, segment.count);
      this.#counts.delete(name);
      for (const page of this.#pages.keys()) if (page.startsWith(`${name}/`)) this.#pages.delete(page);
    }
  }

  /** Returns the number of rows of a step as the answers have it; null before the first answer. */
  countOf(segment: Segment): number | null {
    return this.#counts.get(nameOf(segment)) ?? null;
  }

  /** Returns a row of a step; undefined while it loads. */
  row(segment: Segment, offset: number): TrajectoryRow | undefined {
    return this.#pages.get(`${nameOf(segment)}/${Math.floor(offset / PAGE_ROWS)}`)?.[offset % PAGE_ROWS];
  }

  /** Returns the index of a trajectory among the rows of its step; -1 if no loaded page has it. */
  offsetOf({ split, step, line, index }: Pick<TrajectoryRow, "split" | "step" | "line" | "index">): number {
    for (const [name, items] of this.#pages) {
      if (!name.startsWith(`${split}/${step}/`)) continue;
      const offset = items?.findIndex((each) => each.line === line && each.index === index) ?? -1;
      if (offset >= 0) return Number(name.split("/").at(-1)) * PAGE_ROWS + offset;
    }
    return -1;
  }

  /** Requests a page of a step, unless it is there or loads already. */
  load(segment: Segment, page: number): void {
    const name = `${nameOf(segment)}/${page}`;
    if (this.#pages.has(name)) return;
    this.#pages.set(name, null);
    const { signal } = this.#closing;
    this.#fetchPage(segment, page, signal).then(
      ({ items, total }) => {
        if (signal.aborted) return;
        this.#pages.set(name, items);
        this.#counts.set(nameOf(segment), total);
        this.#listener.onPage();
      },
      (error: Error) => {
        if (signal.aborted) return;
        this.#pages.delete(name);
        this.#listener.onFail(error);
      },
    );
  }

  /** Drops the requests that have no answer yet. */
  close(): void {
    this.#closing.abort();
  }
}

/** Returns the name of a segment, as in the path of its route. */
function nameOf({ split, step }: Segment): string {
  return `${split}/${step}`;
}
