/** The end of a client's connection as a signal. */

/** Calls `onAbort` when `signal` is aborted, or at once when it is already. Returns how to stop listening. */
export function onceAborted(signal: AbortSignal, onAbort: () => void): () => void {
  if (signal.aborted) onAbort();
  signal.addEventListener("abort", onAbort, { once: true });
  return () => signal.removeEventListener("abort", onAbort);
}

/** What a request ends with whose client is gone. */
export function clientGone(): DOMException {
  return new DOMException("The client closed the connection", "AbortError");
}

/** Aborted with `client`, for a reason that is an AbortError: what a server gives as its reason may be any text. */
export function clientSignal(client: AbortSignal): AbortSignal {
  const abort = new AbortController();
  onceAborted(client, () => abort.abort(clientGone()));
  return abort.signal;
}
