/** Connection that the resources of a client (`models`, `trainingJobs`, `artifacts` …) share, and the requests they send on it. */
import type { Dispatcher } from "undici";
import type { RequestOptions, Transport } from "./transport.ts";

/** Signal and time limit, accepted by every call. */
export interface CallOptions {
  /** Aborts the call, which then rejects with the signal's reason. */
  readonly signal?: AbortSignal | undefined;
  /** Limit for the whole call including retries, in milliseconds; then rejects with a `TimeoutError`. @default no limit */
  readonly timeoutMs?: number | undefined;
}

/**
 * Options of POST requests that create a resource. On a service that honors idempotency keys, two requests with one key create one
 * resource.
 */
export interface CreateOptions extends CallOptions {
  /** Idempotency key of the request. @default a random UUID per call, reused for its retries */
  readonly idempotencyKey?: string | undefined;
}

/**
 * Optional routes and headers that the connected service may support. A property is undefined until a response shows whether the service has
 * the feature; the resource that received the response then sets it.
 */
export interface ServiceFeatures {
  /** Whether the service has the events route of a job. */
  jobEvents: boolean | undefined;
  /** Whether the service processes POSTs with the same `Idempotency-Key` only once. Detected by the key echoed in the response headers. */
  idempotencyKeys: boolean | undefined;
}

/** Connection shared by all resources: transport, addresses and detected features. */
export interface Api {
  readonly transport: Transport;
  /** Base URL without `/v1` and without a trailing slash. */
  readonly baseUrl: string;
  /** Base URL of the OpenAI-compatible routes, with `/v1`. */
  readonly inferenceUrl: string;
  readonly features: ServiceFeatures;
  /**
   * Returns the name by which the service finds a base model: a relative path becomes absolute if the service runs on this machine.
   *
   * @throws ArgumentError `E_ARGUMENT` for a malformed name, and for a relative path on another machine.
   */
  readonly toBaseModel: (text: string, param: string) => Promise<string>;
}

/**
 * Timeout for the response headers of calls that compute before they answer (sampling, tokenizing a batch, loading a base model), in
 * milliseconds. Longer than undici's default of 300 s, which a full queue or a large model exceeds.
 */
export const LONG_CALL_MS = 20 * 60_000;

/** Timeout for the response headers besides the time for which the service holds a request, in milliseconds. */
const HEADERS_TIMEOUT_MS = 60_000;

/** Returns the timeout for the response headers of a request that the service holds for up to `waitSeconds`, in milliseconds. */
export function headersTimeoutFor(waitSeconds: number): number {
  return HEADERS_TIMEOUT_MS + waitSeconds * 1000;
}

/** Properties of a request that creates a resource. */
interface CreateRequest {
  readonly idempotencyKey: string;
  /** Whether a repetition does no harm, for example because names are unique or because a second resource stays empty. */
  readonly isRepeatable: boolean;
}

/**
 * Sends a POST that creates a resource, with an `Idempotency-Key`.
 *
 * A failure without a response leaves open whether the service created the resource. The request is then repeated only if `isRepeatable`, or
 * if the service is known to honor the key; else the repetition could create a second resource. A request that was certainly not sent is
 * always repeated.
 */
export function callCreate(
  api: Api,
  path: string,
  { idempotencyKey, isRepeatable, ...options }: CreateRequest & RequestOptions,
): Promise<unknown> {
  const { features } = api;
  return callJson(api, "POST", path, {
    ...options,
    idempotencyKey,
    retry: isRepeatable || features.idempotencyKeys === true ? "idempotent" : "unsent",
    onHeaders: (headers) => {
      if (headers["idempotency-key"] === idempotencyKey) features.idempotencyKeys = true;
    },
  });
}

/** Sends a request to `{baseUrl}{path}` and parses the JSON response. */
export function callJson(api: Api, method: Dispatcher.HttpMethod, path: string, options: RequestOptions = {}): Promise<unknown> {
  return api.transport.json(method, api.baseUrl + path, options);
}
