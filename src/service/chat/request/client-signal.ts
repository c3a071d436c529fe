/** Abort signals for the end of a client's connection or of the service. */
import { ShutdownError } from "./errors.ts";
import { onceAborted } from "../../../base/util/abort.ts";

/** Returns the error of a request after its client has disconnected. */
export function clientGone(): DOMException {
  return new DOMException("The client closed the connection", "AbortError");
}

/** Abort signal of one request, and the removal of its listener on the service's signal. */
export interface RequestSignal {
  readonly signal: AbortSignal;
  /** Removes the listener. Must be called when the request ends, because the service's signal outlives it. */
  readonly release: () => void;
}

/**
 * Returns a signal that is aborted by `client`, always with an AbortError (a server may abort with any reason), or by `service`, with a
 * {@link ShutdownError}.
 */
export function requestSignal(client: AbortSignal, service: AbortSignal | undefined): RequestSignal {
  const abort = new AbortController();
  onceAborted(client, () => abort.abort(clientGone()));
  const release = onceAborted(service, () => abort.abort(new ShutdownError()));
  return { signal: abort.signal, release };
}
