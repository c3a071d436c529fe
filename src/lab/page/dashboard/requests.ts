/** Requests of the dashboard to the service, with the session cookie. */
import { useEffect, useState } from "preact/hooks";
import type { ErrorBody } from "../../../base/schema/index.ts";

/** Failed request with the service's message. */
export class RequestError extends Error {
  /** HTTP status; 0 if the service could not be reached. */
  readonly status: number;

  constructor(status: number, message: string) {
    super(message);
    this.name = "RequestError";
    this.status = status;
  }
}

/** Sends a request to the service. @throws {@link RequestError} for any status of 400 or above, and without a connection. */
export async function send(path: string, init: RequestInit = {}): Promise<Response> {
  let response: Response;
  try {
    response = await fetch(path, { credentials: "same-origin", ...init });
  } catch (error) {
    if (init.signal?.aborted === true) throw error;
    throw new RequestError(0, "The service cannot be reached. Check that it runs, then load the page again.");
  }
  if (response.ok) return response;
  if (response.status === 401) dispatchEvent(new Event(SESSION_END));
  throw new RequestError(response.status, await messageOf(response));
}

/** Returns the message of an error response; the status if its body is not an error body. */
async function messageOf(response: Response): Promise<string> {
  const text = await response.text();
  try {
    return (JSON.parse(text) as ErrorBody).error.message;
  } catch {
    return `The service answered ${response.status} ${response.statusText}`;
  }
}

/** Returns the JSON of a route. @throws {@link RequestError} as {@link send} does. */
export async function getJson<T>(path: string, signal?: AbortSignal): Promise<T> {
  const response = await send(path, signal === undefined ? {} : { signal });
  return (await response.json()) as T;
}

/** Event of the window when the service has rejected the session. */
const SESSION_END = "whetstone-session-end";

/** Returns whether the service has rejected the session. */
export function useSessionEnd(): boolean {
  const [hasEnded, setEnded] = useState(false);
  useEffect(() => {
    const listener = () => setEnded(true);
    addEventListener(SESSION_END, listener);
    return () => removeEventListener(SESSION_END, listener);
  }, []);
  return hasEnded;
}

/** Answer of a route as it loads. */
export interface Resource<T> {
  /** The newest answer; undefined before the first one. */
  readonly value: T | undefined;
  readonly error: Error | null;
  readonly isLoading: boolean;
}

/**
 * Returns the JSON of a route, and requests it again if the path or `version` changes. The answer of another path is never shown; a new
 * version of the same path replaces the old answer when it has arrived.
 *
 * @param path - Path of the route; null requests nothing.
 */
export function useResource<T>(path: string | null, version: unknown = 0): Resource<T> {
  const [state, setState] = useState<{ readonly path: string | null; readonly value: T | undefined; readonly error: Error | null }>({
    path: null,
    value: undefined,
    error: null,
  });
  useEffect(() => {
    if (path === null) return undefined;
    const abort = new AbortController();
    // An answer to a former path is dropped.
    const setUnlessAborted = (next: { readonly value: T | undefined; readonly error: Error | null }) => {
      if (!abort.signal.aborted) setState({ path, ...next });
    };
    getJson<T>(path, abort.signal).then(
      (value) => setUnlessAborted({ value, error: null }),
      (error: Error) => setUnlessAborted({ value: undefined, error }),
    );
    return () => abort.abort();
  }, [path, version]);
  const { value, error } = state;
  if (state.path !== path) return { value: undefined, error: null, isLoading: path !== null };
  return { value, error, isLoading: value === undefined && error === null && path !== null };
}
