/** Requests of trackers to tracking servers. */
import { request } from "undici";
import { ConfigError } from "../../base/errors.ts";
import { messageOf, parseJson } from "../../base/util/values.ts";

/** Max characters of an error response in a message. */
const MAX_ERROR_CHARACTERS = 300;

/** Response of a tracking server with another status than 2xx. */
export class TrackerResponseError extends Error {
  /** HTTP status. */
  readonly status: number;
  /** Parsed body; the text if it is not JSON. */
  readonly body: unknown;

  constructor(status: number, url: string, text: string) {
    super(`${url} answered ${status}: ${text.slice(0, MAX_ERROR_CHARACTERS)}`);
    this.name = "TrackerResponseError";
    this.status = status;
    this.body = jsonOrText(text);
  }
}

/** Request to a tracking server. */
export interface TrackerRequest {
  /** Address with path and query. */
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  /** JSON body. The request is a POST with a body, and a GET without one. */
  readonly body?: unknown;
  readonly signal: AbortSignal;
}

/**
 * Sends a request and returns the parsed response.
 *
 * @throws TrackerResponseError for a status other than 2xx, and an error that names the address if no response arrives.
 */
export async function sendToTracker({ url, headers, body, signal }: TrackerRequest): Promise<unknown> {
  const response = await request(url, {
    method: body === undefined ? "GET" : "POST",
    headers: { ...headers, ...(body === undefined ? {} : { "content-type": "application/json" }) },
    body: body === undefined ? null : JSON.stringify(body),
    signal,
  }).catch((error: unknown) => {
    signal.throwIfAborted();
    throw new Error(`${url} is unreachable: ${messageOf(error)}`, { cause: error });
  });
  const text = await response.body.text();
  if (response.statusCode < 200 || response.statusCode > 299) throw new TrackerResponseError(response.statusCode, url, text);
  return jsonOrText(text);
}

/**
 * Checks the address of a tracking server and returns it without a slash at the end of its path.
 *
 * @param variable - Environment variable that the error message names as the other source of the address.
 * @throws ConfigError `E_CONFIG` without an address, or for one that is not http or https.
 */
export function serverUrl(url: string | undefined, variable: string): string {
  if (url === undefined || url === "")
    throw new ConfigError(`Expected the address of the server: the option \`url\` or ${variable}`, { param: "url" });
  if (!URL.canParse(url) || !/^https?:$/u.test(new URL(url).protocol))
    throw new ConfigError(`Expected \`url\` to be an http or https address, got ${JSON.stringify(url)}`, { param: "url" });
  return url.replace(/^(?<path>[^?#]*?)\/+(?=[?#]|$)/u, "$<path>");
}

/** Returns the value of a JSON text; any other text unchanged. */
function jsonOrText(text: string): unknown {
  const value = parseJson(text);
  return value === undefined ? text : value;
}
