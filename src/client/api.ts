import type { Dispatcher } from "undici";
import type { RequestOptions, Transport } from "./transport.ts";

/** Options of every call. */
export interface CallOptions {
  /** Aborts the call, which then rejects with the signal's reason. */
  readonly signal?: AbortSignal | undefined;
  /** Limit for the whole call including retries, in milliseconds; then rejects with a `TimeoutError`. @default no limit */
  readonly timeoutMs?: number | undefined;
}

/** Options of POST requests that create a resource. Two requests with the same key create one resource. */
export interface CreateOptions extends CallOptions {
  /** Idempotency key of the request. @default a random UUID per call, reused for its retries */
  readonly idempotencyKey?: string | undefined;
}

/** Detected extensions of the service; undefined = not known yet. Shared by all resources of one connection. */
export interface ServiceFeatures {
  /** Whether the service has the events route of a job. */
  jobEvents: boolean | undefined;
  /** Whether the service processes POSTs with the same `Idempotency-Key` only once. Detected by the key echoed in the response headers. */
  idempotencyKeys: boolean | undefined;
}

/** Connection shared by all resources: transport and addresses. */
export interface Api {
  readonly transport: Transport;
  /** Base URL without `/v1` and without a trailing slash. */
  readonly baseUrl: string;
  /** Base URL with `/v1`, for the list of served models. */
  readonly inferenceUrl: string;
  readonly features: ServiceFeatures;
}

/**
 * Timeout for the response headers of calls that need computation (sampling, accepting a batch), in milliseconds. Node's default would be
 * 300 s.
 */
export const LONG_CALL_MS = 20 * 60_000;

/**
 * Sends a POST that creates a resource, with an `Idempotency-Key`.
 *
 * Unless `isRepeatable`, the request is repeated after an ambiguous failure only if the service is known to honor the key. Otherwise a lost
 * response could create a second resource.
 */
export function callCreate(
  api: Api,
  path: string,
  options: RequestOptions & { readonly idempotencyKey: string },
  isRepeatable: boolean,
): Promise<unknown> {
  const { features } = api;
  return callJson(api, "POST", path, {
    ...options,
    retry: isRepeatable || features.idempotencyKeys === true ? "idempotent" : "unsent",
    onHeaders: (headers) => {
      if (headers["idempotency-key"] === options.idempotencyKey) features.idempotencyKeys = true;
    },
  });
}

/** Sends a request to `{baseUrl}{path}` and parses the JSON response. */
export function callJson(api: Api, method: Dispatcher.HttpMethod, path: string, options: RequestOptions = {}): Promise<unknown> {
  return api.transport.json(method, api.baseUrl + path, options);
}
