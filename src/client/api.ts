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

/** Where the resources find the service: transport and addresses. */
export interface Api {
  readonly transport: Transport;
  /** Without `/v1` and without a slash at the end. */
  readonly baseUrl: string;
  /** With `/v1`; for the list of served models. */
  readonly inferenceUrl: string;
}

/** Answer within this for calls that make the service work: sampling, accepting a batch. Node's HTTP default would be 300 s. */
export const LONG_CALL_MS = 20 * 60_000;

/** Sends to `{baseUrl}{path}` and reads JSON. */
export function callJson(api: Api, method: Dispatcher.HttpMethod, path: string, options: RequestOptions = {}): Promise<unknown> {
  return api.transport.json(method, api.baseUrl + path, options);
}
