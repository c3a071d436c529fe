/** Results of a search in the form of a list of trajectories. */
import { useMemo } from "preact/hooks";
import type { SearchAnswer } from "../../dashboard/api.ts";
import type { PagedRows } from "./paged-rows.ts";
import { useResource } from "./requests.ts";

/** Rows that a search has found. */
export interface FoundRows extends PagedRows {
  readonly isLoading: boolean;
  /** Whether the list has every trajectory with the text. */
  readonly isComplete: boolean;
}

/**
 * Returns the trajectories of a run that contain a text.
 *
 * @param query - Query of the route of the search; empty to search nothing.
 */
export function useFoundRows(run: string, query: string): FoundRows {
  const { value, error, isLoading } = useResource<SearchAnswer>(
    query === "" ? null : `/ui/api/runs/${encodeURIComponent(run)}/search?${query}`,
  );
  return useMemo(() => {
    const items = value?.items ?? [];
    return {
      total: items.length,
      row: (index) => items[index],
      // A search returns all its rows at once.
      show: () => undefined,
      startOf: ({ split, step }) => items.findIndex((each) => each.split === split && each.step === step),
      indexOf: ({ split, step, line, index }) =>
        items.findIndex((each) => each.split === split && each.step === step && each.line === line && each.index === index),
      error,
      isLoading,
      isComplete: value?.isComplete ?? true,
    };
  }, [value, error, isLoading]);
}
