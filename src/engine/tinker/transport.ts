/** HTTP client of the Tinker protocol: retries requests that are safe to repeat, long-polls futures, maps HTTP errors to error codes. */
import { Agent, type Dispatcher } from "undici";
import type { z } from "zod";
import {
  ArgumentError,
  ConfigError,
  ConflictError,
  EngineError,
  isAbort,
  NotFoundError,
  OverloadedError,
  TooLargeError,
  WhetstoneError,
} from "../../base/errors.ts";
import { type LinkedAbort, linkAbort } from "../../base/util/abort.ts";
import { backoffMs } from "../../base/util/backoff.ts";
import { delay } from "../../base/util/delay.ts";
import { errorAnswer, submittedAnswer, unfinishedAnswer } from "./answers.ts";
import { parseJson } from "../../base/util/values.ts";

/** Options of a {@link TinkerTransport}. */
export interface TinkerTransportOptions {
  /** Address of the server, without `/api/v1`. */
  readonly url: string;
  readonly apiKey: string | null;
  /** Time after which a call fails if the server cannot be reached or is overloaded, in milliseconds. */
  readonly patienceMs: number;
}

/** Request body with its media type. */
export interface Body {
  readonly contentType: "application/json" | "application/x-protobuf";
  readonly bytes: string | Uint8Array;
}

/** Body of a successful response, not yet decoded. */
export interface TinkerAnswer {
  readonly isProtobuf: boolean;
  readonly bytes: Uint8Array;
}

/** Options of a request. */
interface CallOptions {
  readonly signal?: AbortSignal | undefined;
  readonly headers?: Readonly<Record<string, string>> | undefined;
}

/** Timeout of one poll in milliseconds. Servers hold a poll for up to five minutes; a shorter timeout avoids long-idle sockets. */
const POLL_TIMEOUT_MS = 60_000;

/** Pause after a poll without a result, in milliseconds. Limits the request rate to a server that answers polls immediately. */
const POLL_PAUSE_MS = 100;

/** Returns a JSON body. */
export const json = (value: object): Body => ({ contentType: "application/json", bytes: JSON.stringify(value) });

/** Connection to one server. Calls repeat their requests after retryable errors, until `patienceMs` have passed or {@link close}. */
export class TinkerTransport {
  readonly #options: TinkerTransportOptions;
  readonly #agent = new Agent({ headersTimeout: POLL_TIMEOUT_MS, bodyTimeout: POLL_TIMEOUT_MS, keepAliveTimeout: 30_000 });
  /** Requests in progress or waiting for a retry. */
  readonly #calls = new Set<LinkedAbort>();
  #isClosed = false;

  constructor(options: TinkerTransportOptions) {
    this.#options = { ...options, url: options.url.replace(/\/+$/, "") };
  }

  /** Returns the `name` in the JSON at the server's root; null if the root cannot be read. */
  async rootName(signal?: AbortSignal): Promise<string | null> {
    try {
      const { bytes } = await this.#exchange({ method: "GET", path: "/" }, { signal });
      return String((JSON.parse(Buffer.from(bytes).toString()) as { name?: unknown }).name);
    } catch {
      signal?.throwIfAborted();
      return null;
    }
  }

  /** Sends a GET request to a path below `/api/v1` and parses the JSON response. */
  async get<T>(path: string, schema: z.ZodType<T>, options: CallOptions = {}): Promise<T> {
    return this.read(await this.#retried({ method: "GET", path: `/api/v1/${path}` }, options), schema, path);
  }

  /** Sends a POST request to a path below `/api/v1` and parses the JSON response. */
  async post<T>(path: string, body: Body, schema: z.ZodType<T>, options: CallOptions = {}): Promise<T> {
    return this.read(await this.#retried({ method: "POST", path: `/api/v1/${path}`, body }, options), schema, path);
  }

  /** Submits an operation and returns the identifier of its future. The body may be sent again if the response is lost. */
  async submit(path: string, body: Body, options: CallOptions = {}): Promise<z.infer<typeof submittedAnswer>> {
    return this.post(path, body, submittedAnswer, options);
  }

  /**
   * Waits for the result of a future, without a time limit.
   *
   * @param type - Name of the operation, sent as a header and used in error messages.
   * @param options - `accepts`: media type accepted for the result, besides JSON.
   * @throws ArgumentError `E_ARGUMENT` if the operation failed because of its input; EngineError `E_ENGINE` for any other failure.
   */
  async future(
    requestId: string,
    type: string,
    { accepts, signal }: { readonly accepts?: string; readonly signal?: AbortSignal | undefined } = {},
  ): Promise<TinkerAnswer> {
    const body = json({ request_id: requestId });
    for (let iteration = 0; ; iteration++) {
      if (iteration > 0) await delay(POLL_PAUSE_MS, { signal });
      const headers = {
        "x-tinker-request-iteration": String(iteration),
        "x-tinker-request-type": type,
        ...(accepts === undefined ? {} : { accept: accepts }),
      };
      const answer = await this.#retried({ method: "POST", path: "/api/v1/retrieve_future", body, isPoll: true }, { signal, headers });
      if (answer === null) continue;
      if (answer.isProtobuf) return answer;
      const unfinished = unfinishedAnswer.safeParse(parsedBody(answer.bytes));
      if (!unfinished.success) return answer;
      if (!("error" in unfinished.data)) continue;
      const { error, category } = unfinished.data as { error: string; category?: string | null };
      const message = `The server could not carry out ${type}: ${error}`;
      throw category === "user" ? new ArgumentError(message) : new EngineError(message, { retryable: category === "server" });
    }
  }

  /**
   * Parses a JSON response.
   *
   * @param operation - Name of the operation for the error message.
   * @throws EngineError `E_ENGINE` if the response does not match the schema.
   */
  read<T>(answer: TinkerAnswer | null, schema: z.ZodType<T>, operation: string): T {
    const result = schema.safeParse(answer === null ? null : parsedBody(answer.bytes));
    if (result.success) return result.data;
    const [issue] = result.error.issues;
    throw new EngineError(
      `The answer to ${operation} is not of the Tinker protocol: ${issue?.path.join(".") ?? ""} ${issue?.message ?? ""}`,
    );
  }

  /** Closes the connection. Calls in progress and later calls reject with `E_ENGINE`. */
  async close(): Promise<void> {
    this.#isClosed = true;
    for (const call of this.#calls) call.abort(closedError());
    await this.#agent.destroy();
  }

  /** Sends a request, and repeats it after retryable errors until `patienceMs` or `close`. Returns null for a poll without a result. */
  async #retried(request: Exchange, options: CallOptions): Promise<TinkerAnswer | null> {
    const call = linkAbort(options.signal);
    this.#calls.add(call);
    if (this.#isClosed) call.abort(closedError());
    const { signal } = call;
    const giveUpAtMs = performance.now() + this.#options.patienceMs;
    try {
      for (let attempt = 0; ; attempt++) {
        try {
          return await this.#exchange(request, { ...options, signal });
        } catch (error) {
          signal.throwIfAborted();
          if (error instanceof StillPending) return null;
          if (!WhetstoneError.isInstance(error) || !error.retryable || performance.now() > giveUpAtMs) throw error;
          await delay(backoffMs(attempt, { maxMs: 30_000 }), { signal });
        }
      }
    } finally {
      this.#calls.delete(call);
      call.dispose();
    }
  }

  /** Sends a request once. @throws {@link StillPending} for a poll without a result. */
  async #exchange(request: Exchange, { signal, headers = {} }: CallOptions): Promise<TinkerAnswer> {
    const { apiKey, url } = this.#options;
    const { origin, pathname } = new URL(url);
    let response: Dispatcher.ResponseData;
    let bytes: Uint8Array;
    try {
      response = await this.#agent.request({
        origin,
        path: (pathname === "/" ? "" : pathname) + request.path,
        method: request.method,
        headers: {
          ...(apiKey === null ? {} : { "x-api-key": apiKey }),
          ...(request.body === undefined ? {} : { "content-type": request.body.contentType }),
          ...headers,
        },
        body: request.body?.bytes ?? null,
        signal: signal ?? null,
      });
      bytes = await response.body.bytes();
    } catch (cause) {
      signal?.throwIfAborted();
      if (isAbort(cause)) throw cause;
      const { code, message } = cause as { code?: string; message: string };
      if (request.isPoll === true && (code === "UND_ERR_HEADERS_TIMEOUT" || code === "UND_ERR_BODY_TIMEOUT")) throw new StillPending();
      throw new EngineError(`The Tinker server at ${origin} cannot be reached: ${message}`, { cause, retryable: true });
    }
    const { statusCode } = response;
    if (statusCode >= 200 && statusCode < 300) {
      return { isProtobuf: String(response.headers["content-type"] ?? "").includes("protobuf"), bytes };
    }
    if (request.isPoll === true && statusCode === 408) throw new StillPending();
    throw toError(statusCode, request.path.replace("/api/v1/", ""), parsedBody(bytes));
  }
}

/** HTTP request to a Tinker server. */
interface Exchange {
  readonly method: "GET" | "POST";
  readonly path: string;
  readonly body?: Body;
  /** Whether the request polls a future. */
  readonly isPoll?: boolean;
}

/** Returns the error of calls on a closed connection. */
const closedError = (): EngineError => new EngineError("The engine on the Tinker server is closed");

/** Thrown if a poll ends before the future has a result. */
class StillPending extends Error {}

/** Parses the body of an answer; null if it is not JSON. */
function parsedBody(bytes: Uint8Array): unknown {
  return parseJson(Buffer.from(bytes).toString()) ?? null;
}

/** Errors of the statuses that need no further text. */
const ERRORS: Readonly<Record<number, new (message: string) => WhetstoneError>> = {
  404: NotFoundError,
  409: ConflictError,
  413: TooLargeError,
  422: ArgumentError,
};

/** Returns the error for an HTTP status of an operation. */
function toError(status: number, operation: string, body: unknown): WhetstoneError {
  const reason = errorAnswer.safeParse(body);
  const message = `The Tinker server answered ${operation} with ${status}${reason.success ? `: ${reason.data}` : ""}`;
  const ErrorClass = ERRORS[status];
  if (ErrorClass !== undefined) return new ErrorClass(message);
  if (status === 401 || status === 403) return new ConfigError(`${message}. Check the API key of the engine`, { param: "engine" });
  if (status === 402) return new EngineError(`${message}. Resolve the problem with the account, then send the request again`);
  if (status === 429) return new OverloadedError(message, { retryable: true });
  // 425: the server is writing a checkpoint. 408: the server timed out waiting for its engine.
  return new EngineError(message, { retryable: status >= 500 || status === 408 || status === 425 });
}
