/** Runs that a page shows together with its own run. */
/** Returns the ids of the runs that a query shows together with `run`, in order and each once: `with=a,b`. */
export function addedRuns(query: URLSearchParams, run: string): string[] {
  const ids = (query.get("with") ?? "").split(",").filter((id) => id !== "" && id !== run);
  return [...new Set(ids)];
}
