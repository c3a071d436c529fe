/** List of the trajectories of several steps, of which only the visible pages are requested. */
import { useCallback, useEffect, useMemo, useRef, useState } from "preact/hooks";
import type { Page, TrajectoryRow } from "../../dashboard/api.ts";
import type { Split } from "../../../run/data.ts";
import { getJson } from "./requests.ts";

/** Rows of a page. */
const PAGE_ROWS = 100;
/** Milliseconds without scrolling after which rows are requested. */
const SETTLE_MS = 40;

/** Step of the list. */
export interface Segment {
  readonly split: Split;
  readonly step: number;
  /** Number of rows as far as known; the first page of the step corrects it. */
  readonly count: number;
}

/** Rows of a list, fetched in pages as they become visible. */
export interface PagedRows {
  readonly total: number;
  /** Returns a row; undefined while it loads. */
  readonly row: (index: number) => TrajectoryRow | undefined;
  /** Requests the rows of a range as soon as the scroll bar rests. */
  readonly show: (first: number, last: number) => void;
  /** Returns the index of the first row of a step; -1 if the list lacks the step. */
  readonly startOf: (wanted: Pick<TrajectoryRow, "split" | "step">) => number;
  /** Returns the index of a trajectory among the loaded rows; -1 for none. */
  readonly indexOf: (wanted: Pick<TrajectoryRow, "split" | "step" | "line" | "index">) => number;
  readonly error: Error | null;
}

/** Returns the segment of an index, and the index within the segment. `starts` are the first indexes of the segments. */
export function locate(starts: readonly number[], index: number): { readonly segment: number; readonly offset: number } {
  let [low, high] = [0, starts.length - 1];
  while (low < high) {
    const middle = Math.ceil((low + high) / 2);
    if ((starts[middle] ?? 0) <= index) low = middle;
    else high = middle - 1;
  }
  return { segment: low, offset: index - (starts[low] ?? 0) };
}

/**
 * Fetches the rows of several steps as one list.
 *
 * @param query - Further query parameters, such as a filter: `&sort=reward`.
 */
export function usePagedRows(run: string, segments: readonly Segment[], query: string): PagedRows {
  const identity = `${run} ${query}`;
  /** Pages by `split/step/page`; null while a page loads. */
  const pages = useRef(new Map<string, readonly TrajectoryRow[] | null>());
  /** Number of rows by `split/step`, as the answers have it. */
  const counts = useRef(new Map<string, number>());
  /** `count` of each segment when its pages were fetched, by `split/step`. */
  const fetchedCounts = useRef(new Map<string, number>());
  const [version, setVersion] = useState(0);
  const [error, setError] = useState<Error | null>(null);
  /** Run and query that `pages` and `counts` belong to. */
  const fetchedIdentity = useRef(identity);
  if (fetchedIdentity.current !== identity) {
    fetchedIdentity.current = identity;
    pages.current = new Map();
    counts.current = new Map();
  }
  const { starts, total } = useMemo(() => {
    let sum = 0;
    for (const segment of segments) {
      const name = nameOf(segment);
      if (fetchedCounts.current.get(name) === segment.count) continue;
      // The step has grown since its pages were fetched.
      fetchedCounts.current.set(name, segment.count);
      counts.current.delete(name);
      for (const page of pages.current.keys()) if (page.startsWith(`${name}/`)) pages.current.delete(page);
    }
    const segmentStarts = segments.map((segment) => {
      const start = sum;
      sum += counts.current.get(nameOf(segment)) ?? segment.count;
      return start;
    });
    return { starts: segmentStarts, total: sum };
  }, [segments, version]);
  /** Range of the newest call of `show`. */
  const visibleRange = useRef<readonly [first: number, last: number]>([0, -1]);
  /** Timer that starts again with each call of `show`. */
  const settleTimer = useRef<ReturnType<typeof setTimeout>>(undefined);

  /** Requests a page of a step, unless it is there or loads already. */
  const load = useCallback(
    (segment: Segment, page: number) => {
      const name = `${nameOf(segment)}/${page}`;
      const target = pages.current;
      if (target.has(name)) return;
      target.set(name, null);
      const path = `/ui/api/runs/${encodeURIComponent(run)}/steps/${nameOf(segment)}/trajectories`;
      getJson<Page<TrajectoryRow>>(`${path}?offset=${page * PAGE_ROWS}&limit=${PAGE_ROWS}${query}`).then(
        ({ items, total: rows }) => {
          target.set(name, items);
          counts.current.set(nameOf(segment), rows);
          setError(null);
          setVersion((before) => before + 1);
        },
        (failure: Error) => {
          target.delete(name);
          setError(failure);
        },
      );
    },
    [run, query],
  );
  /** Requests the pages of the visible range. */
  const request = useCallback(() => {
    const [first, last] = visibleRange.current;
    for (let index = first; index <= last;) {
      const { segment: position, offset } = locate(starts, index);
      const segment = segments[position];
      if (segment === undefined) return;
      const page = Math.floor(offset / PAGE_ROWS);
      load(segment, page);
      // Goes to the next page, or to the next segment if it begins earlier.
      const rowsToPageEnd = (page + 1) * PAGE_ROWS - offset;
      const rowsToSegmentEnd = (starts[position + 1] ?? total) - index;
      index += Math.max(1, Math.min(rowsToPageEnd, rowsToSegmentEnd));
    }
    // A step without recorded counts: its first page has the number of rows.
    for (const segment of segments) if (segment.count === 0 && !counts.current.has(nameOf(segment))) load(segment, 0);
  }, [segments, starts, total, load]);
  useEffect(request, [request]);
  useEffect(() => () => clearTimeout(settleTimer.current), []);

  const show = useCallback(
    (first: number, last: number) => {
      visibleRange.current = [first, last];
      clearTimeout(settleTimer.current);
      settleTimer.current = setTimeout(request, SETTLE_MS);
    },
    [request],
  );
  const row = (index: number) => {
    const { segment: position, offset } = locate(starts, index);
    const segment = segments[position];
    if (segment === undefined) return undefined;
    return pages.current.get(`${nameOf(segment)}/${Math.floor(offset / PAGE_ROWS)}`)?.[offset % PAGE_ROWS];
  };
  const startOf: PagedRows["startOf"] = ({ split, step }) =>
    starts[segments.findIndex((each) => each.split === split && each.step === step)] ?? -1;
  const indexOf: PagedRows["indexOf"] = ({ split, step, line, index }) => {
    const start = startOf({ split, step });
    if (start < 0) return -1;
    for (const [name, items] of pages.current) {
      if (!name.startsWith(`${split}/${step}/`)) continue;
      const offset = items?.findIndex((each) => each.line === line && each.index === index) ?? -1;
      if (offset >= 0) return start + Number(name.split("/").at(-1)) * PAGE_ROWS + offset;
    }
    return -1;
  };
  return { total, row, show, startOf, indexOf, error };
}

/** Returns the name of a segment, as in the path of its route. */
function nameOf({ split, step }: Segment): string {
  return `${split}/${step}`;
}
