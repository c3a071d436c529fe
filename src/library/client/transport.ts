/** HTTP transport of the client: one connection pool, with authorization, timeouts, retries and typed errors for every request. */
import { setMaxListeners } from "node:events";
import type { IncomingHttpHeaders } from "node:http";
import type { Readable } from "node:stream";
import { Agent, errors, type Dispatcher } from "undici";
import { ConfigError, isAbort } from "../../base/errors.ts";
import { linkAbort } from "../../base/util/abort.ts";
import { activeTracing } from "../../base/util/tracing.ts";
import { isRetryableStatus } from "../../base/util/retryable.ts";
import { ConnectionError, HttpError, ProtocolError, readErrorBody } from "./errors.ts";
import { bytesOf, exchange, answerText, type HttpAnswer } from "./exchange.ts";
import { readRetryAfter, withRetries, type RateLimitCallback, type RetryPolicy } from "./retry.ts";

/** Options of {@link Transport}. */
export interface TransportOptions {
  /** API key, sent as bearer token; null sends none. Never printed. */
  readonly apiKey: string | null;
  /** Max number of sockets per origin. @default 256 */
  readonly connections?: number | undefined;
  /** Max number of retries of a request that is safe to repeat. @default 4 */
  readonly maxRetries?: number | undefined;
  /** Milliseconds for which an idle socket is kept open. @default 4000: below the 5 s after which a Node server closes it */
  readonly keepAliveTimeoutMs?: number | undefined;
}

/** Options of one request. */
export interface RequestOptions {
  /** Query parameters; undefined ones are omitted. */
  readonly query?: Readonly<Record<string, string | number | undefined>> | undefined;
  /** Body that is serialized as JSON; takes precedence over `body`. */
  readonly json?: unknown;
  /** Body that is sent unchanged. A function is called once per attempt, so that a retry starts from the beginning. */
  readonly body?: Uint8Array | string | (() => AsyncIterable<Uint8Array>) | undefined;
  readonly headers?: Readonly<Record<string, string>> | undefined;
  /** Called with the headers of a 2xx response. */
  readonly onHeaders?: ((headers: Readonly<Record<string, string | string[] | undefined>>) => void) | undefined;
  /** Retry policy. @default "idempotent" for GET, PUT and DELETE and with an `idempotencyKey`, else "never" */
  readonly retry?: RetryPolicy | undefined;
  /** Decides about the retry after a 429 response, before the retry policy does. @default the retry policy decides */
  readonly onRateLimit?: RateLimitCallback | undefined;
  readonly idempotencyKey?: string | undefined;
  readonly signal?: AbortSignal | undefined;
  /** Limit for the whole call including retries, in milliseconds; then rejects with a `TimeoutError`. @default no limit */
  readonly timeoutMs?: number | undefined;
  /** Max wait for the response headers per attempt, in milliseconds; exceeding it counts as a connection error. @default 60 000 */
  readonly headersTimeoutMs?: number | undefined;
}

/** Max time between two body chunks, in milliseconds. A sampler under load may send nothing for minutes. */
const BODY_TIMEOUT_MS = 600_000;
/** Default of {@link RequestOptions.headersTimeoutMs}. */
const HEADERS_TIMEOUT_MS = 60_000;
/** Max time to open a socket, in milliseconds. */
const CONNECT_TIMEOUT_MS = 10_000;

/** HTTP over undici with authorization, timeouts, retries and typed errors. Independent of the service's resources. */
export class Transport {
  readonly #agent: Agent;
  readonly #apiKey: string | null;
  readonly #maxRetries: number;

  constructor({ apiKey, connections = 256, maxRetries = 4, keepAliveTimeoutMs = 4_000 }: TransportOptions) {
    // A header must not contain line breaks; undici's own error message would quote the key.
    if (apiKey !== null && !/^[\x21-\x7e]+$/.test(apiKey)) {
      throw new ConfigError("Expected `apiKey` to be visible ASCII without spaces; is there a line break at its end?", { param: "apiKey" });
    }
    this.#apiKey = apiKey;
    this.#maxRetries = maxRetries;
    this.#agent = new Agent({ connections, keepAliveTimeout: keepAliveTimeoutMs, connect: { timeout: CONNECT_TIMEOUT_MS } });
  }

  /**
   * Sends a request and parses its JSON body; returns null for an empty body.
   *
   * @throws ProtocolError `E_PROTOCOL` if the body is not JSON.
   * @throws HttpError `E_HTTP` for an error status.
   * @throws ConnectionError `E_CONNECTION` if there was no complete response.
   */
  async json(method: Dispatcher.HttpMethod, url: string, options: RequestOptions = {}): Promise<unknown> {
    const text = answerText(await this.#call(method, url, options));
    if (text === "") return null;
    try {
      return JSON.parse(text) as unknown;
    } catch (error) {
      throw new ProtocolError(`Expected JSON from ${method} ${withoutQuery(url)}, got \`${this.#redact(text.slice(0, 80))}\``, {
        cause: error,
      });
    }
  }

  /** Sends a request and returns its body as bytes. */
  async bytes(method: Dispatcher.HttpMethod, url: string, options: RequestOptions = {}): Promise<Uint8Array> {
    return bytesOf(await this.#call(method, url, options));
  }

  /**
   * Sends a request and streams its body. Leaving the loop aborts the request; a cut body throws {@link ConnectionError}. Retried only
   * until the response headers arrive.
   */
  async *stream(method: Dispatcher.HttpMethod, url: string, options: RequestOptions = {}): AsyncGenerator<Uint8Array, void, undefined> {
    const link = linkAbort(options.signal, { timeoutMs: options.timeoutMs, label: `${method} ${withoutQuery(url)}` });
    let body: Dispatcher.ResponseData["body"] | undefined;
    try {
      body = await this.#withRetries(method, options, link.signal, () => this.#open(method, url, options, link.signal));
      for await (const piece of body) yield piece as Uint8Array;
    } catch (error) {
      throw this.#typedError(error, method, url, link.signal);
    } finally {
      // Destroyed rather than drained, so that the server notices the disconnect and stops generating.
      body?.on("error", ignore).destroy();
      link.dispose();
    }
  }

  /** Closes idle sockets and waits for running requests. */
  async close(): Promise<void> {
    await this.#agent.close();
  }

  /** Sends a request with retries. Not `async`, to save a promise per call when thousands of requests are in flight. */
  #call(method: Dispatcher.HttpMethod, url: string, options: RequestOptions): Promise<HttpAnswer> {
    const { signal, timeoutMs } = options;
    if (timeoutMs !== undefined) return this.#callWithin(timeoutMs, method, url, options);
    // Hundreds of requests may share one signal, which would trigger Node's warning about a leak; each removes its listener.
    if (signal !== undefined) setMaxListeners(0, signal);
    return this.#withRetries(method, options, signal, () => this.#send(method, url, options, signal));
  }

  /** Sends a request with retries, within `timeoutMs` for all attempts together. */
  async #callWithin(timeoutMs: number, method: Dispatcher.HttpMethod, url: string, options: RequestOptions): Promise<HttpAnswer> {
    const link = linkAbort(options.signal, { timeoutMs, label: `${method} ${withoutQuery(url)}` });
    try {
      return await this.#withRetries(method, options, link.signal, () => this.#send(method, url, options, link.signal));
    } finally {
      link.dispose();
    }
  }

  /** Runs `send` with the retry policy of the request. */
  #withRetries<T>(
    method: Dispatcher.HttpMethod,
    options: RequestOptions,
    signal: AbortSignal | undefined,
    send: () => Promise<T>,
  ): Promise<T> {
    const policy = options.retry ?? (method !== "POST" || options.idempotencyKey !== undefined ? "idempotent" : "never");
    return withRetries(send, { policy, maxRetries: this.#maxRetries, signal, onRateLimit: options.onRateLimit });
  }

  /** Sends one attempt and returns the whole response. */
  async #send(method: Dispatcher.HttpMethod, url: string, options: RequestOptions, signal: AbortSignal | undefined): Promise<HttpAnswer> {
    signal?.throwIfAborted();
    try {
      const answer = await exchange(this.#agent, this.#request(method, url, options), signal);
      if (!isSuccess(answer.status)) throw this.#httpError(method, url, answer.status, answer.headers, answerText(answer));
      options.onHeaders?.(answer.headers);
      return answer;
    } catch (error) {
      throw this.#typedError(error, method, url, signal);
    }
  }

  /** Sends one attempt and returns the response body as a stream. */
  async #open(
    method: Dispatcher.HttpMethod,
    url: string,
    options: RequestOptions,
    signal: AbortSignal,
  ): Promise<Dispatcher.ResponseData["body"]> {
    signal.throwIfAborted();
    try {
      const { statusCode, headers, body } = await this.#agent.request({ ...this.#request(method, url, options), signal });
      if (!isSuccess(statusCode)) throw this.#httpError(method, url, statusCode, headers, await body.text());
      options.onHeaders?.(headers);
      return body;
    } catch (error) {
      throw this.#typedError(error, method, url, signal);
    }
  }

  /** Returns the request in the form of undici. */
  #request(method: Dispatcher.HttpMethod, url: string, options: RequestOptions): Dispatcher.RequestOptions & { readonly origin: string } {
    const { origin, path } = addressOf(url, options.query);
    const headers: Record<string, string> = { accept: "application/json", ...options.headers };
    if (this.#apiKey !== null) headers["authorization"] = `Bearer ${this.#apiKey}`;
    if (options.idempotencyKey !== undefined) headers["idempotency-key"] = options.idempotencyKey;
    if (options.json !== undefined) headers["content-type"] = "application/json";
    activeTracing()?.inject(headers);
    const body = typeof options.body === "function" ? options.body() : options.body;
    return {
      origin,
      path,
      method,
      headers,
      // undici accepts any async iterable, although its type declares Readable.
      body: (options.json === undefined ? (body ?? null) : toJson(options.json)) as string | Uint8Array | Readable | null,
      headersTimeout: options.headersTimeoutMs ?? HEADERS_TIMEOUT_MS,
      bodyTimeout: BODY_TIMEOUT_MS,
    };
  }

  /** Creates the error of a response with an error status and the body `text`. */
  #httpError(method: string, url: string, status: number, headers: IncomingHttpHeaders, text: string): HttpError {
    const facts = readErrorBody(text);
    return new HttpError(this.#redact(`${method} ${withoutQuery(url)} answered ${status}: ${facts.message ?? "no message"}`), {
      status,
      type: facts.type,
      param: facts.param,
      serviceCode: facts.serviceCode,
      reason: facts.message === null ? null : this.#redact(facts.message),
      requestId: firstValue(headers["x-request-id"]) ?? null,
      retryAfterMs: readRetryAfter(firstValue(headers["retry-after"])),
      retryable: isRetryableStatus(status),
    });
  }

  /** Converts errors of undici to typed errors. Typed errors pass unchanged; an abort becomes the signal's reason. */
  #typedError(error: unknown, method: string, url: string, signal: AbortSignal | undefined): unknown {
    if (signal?.aborted) return signal.reason;
    if (error instanceof HttpError || error instanceof ProtocolError || error instanceof ConnectionError || isAbort(error)) return error;
    if (!(error instanceof Error)) return error;
    const code = "code" in error && typeof error.code === "string" ? error.code : null;
    if (code === null) return error;
    const isBeforeSend = error instanceof errors.ConnectTimeoutError || BEFORE_SEND.has(code);
    const missing = isBeforeSend ? "connection" : "complete answer";
    const message = `${method} ${withoutQuery(url)} got no ${missing}: ${this.#redact(error.message)} (${code})`;
    return new ConnectionError(message, { cause: error, isBeforeSend });
  }

  /** Removes the API key from a text, in case a service echoes a header in its response. */
  #redact(text: string): string {
    return this.#apiKey === null ? text : text.replaceAll(this.#apiKey, "[key]");
  }
}

/** Codes of system and undici errors that occur before anything of a request is sent. */
const BEFORE_SEND = new Set(["ECONNREFUSED", "ENOTFOUND", "EAI_AGAIN", "EHOSTUNREACH", "ENETUNREACH", "UND_ERR_CONNECT_TIMEOUT"]);

/** Splits a URL into the origin and path that undici expects, and appends the query to the path. */
function addressOf(url: string, query: RequestOptions["query"]): { readonly origin: string; readonly path: string } {
  const cached = query === undefined ? addresses.get(url) : undefined;
  if (cached !== undefined) return cached;
  const target = new URL(url);
  for (const [name, value] of Object.entries(query ?? {})) {
    if (value !== undefined) target.searchParams.set(name, String(value));
  }
  const address = { origin: target.origin, path: target.pathname + target.search };
  if (query === undefined && addresses.size < MAX_ADDRESSES) addresses.set(url, address);
  return address;
}

/** Cache of parsed URLs: parsing takes as long as sending a small request, and sampling always uses the same URL. */
const addresses = new Map<string, { readonly origin: string; readonly path: string }>();
/** Max entries of {@link addresses}; further URLs are parsed every time. */
const MAX_ADDRESSES = 64;

function isSuccess(status: number): boolean {
  return status >= 200 && status < 300;
}

/** Returns the URL without query and fragment, for messages. */
function withoutQuery(url: string): string {
  return url.replace(/[?#].*$/, "");
}

/** Returns the first value of a header that may be repeated. */
function firstValue(header: string | string[] | undefined): string | undefined {
  return Array.isArray(header) ? header[0] : header;
}

function ignore(): void {}

/**
 * Serializes a body as JSON. Writes a top-level bigint, such as a 64-bit seed, as an integer, which `JSON.stringify` refuses to do; no
 * other field of this interface is a bigint.
 */
function toJson(value: unknown): string {
  if (typeof value !== "object" || value === null || Array.isArray(value)) return JSON.stringify(value);
  if (!hasBigint(value)) return JSON.stringify(value);
  const fields = Object.entries(value);
  const bigints = fields
    .filter(([, field]) => typeof field === "bigint")
    .map(([name, field]) => `${JSON.stringify(name)}:${String(field)}`);
  const withoutBigints = JSON.stringify(Object.fromEntries(fields.filter(([, field]) => typeof field !== "bigint")));
  if (withoutBigints === "{}") return `{${bigints.join(",")}}`;
  return `{${bigints.join(",")},${withoutBigints.slice(1)}`;
}

/** Whether any top-level field is a bigint. A plain loop, because it runs for every request. */
function hasBigint(value: object): boolean {
  for (const name in value) if (typeof (value as Readonly<Record<string, unknown>>)[name] === "bigint") return true;
  return false;
}
