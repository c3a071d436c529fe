/** The end of a client's connection, or of the service, as a signal. */
import { ShutdownError } from "./errors.ts";

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

/** A signal for one request, and how to stop listening for the end of the service. */
export interface RequestSignal {
  readonly signal: AbortSignal;
  /** Call it when the request is over: the service's signal outlives it. */
  readonly release: () => void;
}

/**
 * Aborts with `client`, for a reason that is an AbortError (what a server gives as its reason may be any text), and with `service`, with a
 * {@link ShutdownError}.
 */
export function requestSignal(client: AbortSignal, service: AbortSignal | undefined): RequestSignal {
  const abort = new AbortController();
  onceAborted(client, () => abort.abort(clientGone()));
  const release = service === undefined ? () => undefined : onceAborted(service, () => abort.abort(new ShutdownError()));
  return { signal: abort.signal, release };
}
