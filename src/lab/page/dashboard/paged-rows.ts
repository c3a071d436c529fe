/** List of the trajectories of several steps, of which only the visible pages are requested. */
import { useCallback, useEffect, useMemo, useRef, useState } from "preact/hooks";
import type { TrajectoryRow } from "../../dashboard/api.ts";
import { type FetchPage, FetchedRows, PAGE_ROWS, type Segment } from "./fetched-rows.ts";
import { getJson } from "./requests.ts";

/** Milliseconds without scrolling after which rows are requested. */
const SETTLE_MS = 40;

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
function locate(starts: readonly number[], index: number): { readonly segment: number; readonly offset: number } {
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
  /** Number of pages that have arrived. */
  const [version, setVersion] = useState(0);
  const [error, setError] = useState<Error | null>(null);
  const fetched = useMemo(() => {
    const fetchPage: FetchPage = ({ split, step }, page, signal) => {
      const path = `/ui/api/runs/${encodeURIComponent(run)}/steps/${split}/${step}/trajectories`;
      return getJson(`${path}?offset=${page * PAGE_ROWS}&limit=${PAGE_ROWS}${query}`, signal);
    };
    const onPage = () => {
      setError(null);
      setVersion((before) => before + 1);
    };
    return new FetchedRows(fetchPage, { onPage, onFail: setError });
  }, [run, query]);
  useEffect(() => () => fetched.close(), [fetched]);
  const { starts, total } = useMemo(() => {
    fetched.forgetGrown(segments);
    let sum = 0;
    const segmentStarts = segments.map((segment) => {
      const start = sum;
      sum += fetched.countOf(segment) ?? segment.count;
      return start;
    });
    return { starts: segmentStarts, total: sum };
  }, [fetched, segments, version]);
  /** Range of the newest call of `show`. */
  const visibleRange = useRef<readonly [first: number, last: number]>([0, -1]);
  /** Timer that starts again with each call of `show`. */
  const settleTimer = useRef<ReturnType<typeof setTimeout>>(undefined);

  /** Requests the pages of the visible range. */
  const request = useCallback(() => {
    const [first, last] = visibleRange.current;
    for (let index = first; index <= last;) {
      const { segment: position, offset } = locate(starts, index);
      const segment = segments[position];
      if (segment === undefined) return;
      const page = Math.floor(offset / PAGE_ROWS);
      fetched.load(segment, page);
      // Goes to the next page, or to the next segment if it begins earlier.
      const rowsToPageEnd = (page + 1) * PAGE_ROWS - offset;
      const rowsToSegmentEnd = (starts[position + 1] ?? total) - index;
      index += Math.max(1, Math.min(rowsToPageEnd, rowsToSegmentEnd));
    }
    // A step without recorded counts: its first page has the number of rows.
    for (const segment of segments) if (segment.count === 0 && fetched.countOf(segment) === null) fetched.load(segment, 0);
  }, [fetched, segments, starts, total]);
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
    return segment === undefined ? undefined : fetched.row(segment, offset);
  };
  const startOf: PagedRows["startOf"] = ({ split, step }) =>
    starts[segments.findIndex((each) => each.split === split && each.step === step)] ?? -1;
  const indexOf: PagedRows["indexOf"] = (wanted) => {
    const start = startOf(wanted);
    const offset = fetched.offsetOf(wanted);
    return start < 0 || offset < 0 ? -1 : start + offset;
  };
  return { total, row, show, startOf, indexOf, error };
}
