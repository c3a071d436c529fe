import type { Dispatcher } from "undici";
import type { RequestOptions, Transport } from "./transport.ts";

/** What every call takes. */
export interface CallOptions {
  /** Rejects with the signal's own reason. */
  readonly signal?: AbortSignal | undefined;
  /** The whole call, retries included, milliseconds; then a `TimeoutError`. @default no limit */
  readonly timeoutMs?: number | undefined;
}

/** What creating POSTs take beside: the same key twice gives one resource. */
export interface CreateOptions extends CallOptions {
  /** @default a random UUID per call, kept over its retries */
  readonly idempotencyKey?: string | undefined;
}

/** What was found out about the service's extensions; undefined = not known. Shared by everything that uses one connection. */
export interface ServiceFeatures {
  /** The events route of a job. */
  jobEvents: boolean | undefined;
  /** A POST with the same `Idempotency-Key` is carried out once. Such a service says the key again in its answer. */
  idempotencyKeys: boolean | undefined;
}

/** Where the resources find the service: transport and addresses. */
export interface Api {
  readonly transport: Transport;
  /** Without `/v1` and without a slash at the end. */
  readonly baseUrl: string;
  /** With `/v1`; for the list of served models. */
  readonly inferenceUrl: string;
  readonly features: ServiceFeatures;
}

/** Answer within this for calls that make the service work: sampling, accepting a batch. Node's HTTP default would be 300 s. */
export const LONG_CALL_MS = 20 * 60_000;

/**
 * A creating POST with an `Idempotency-Key`.
 *
 * Unless `isRepeatable`, it is repeated after an unclear failure only where the service is known to honour the key:
 * elsewhere a lost answer must not become a second resource.
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

/** Sends to `{baseUrl}{path}` and reads JSON. */
export function callJson(api: Api, method: Dispatcher.HttpMethod, path: string, options: RequestOptions = {}): Promise<unknown> {
  return api.transport.json(method, api.baseUrl + path, options);
}
