/** Requests to a Tinker-protocol server: retries where a repetition is safe, futures by long polling, errors with codes. */
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
} from "../../errors.ts";
import { type LinkedAbort, linkAbort } from "../../util/abort.ts";
import { backoffMs } from "../../util/backoff.ts";
import { delay } from "../../util/delay.ts";
import { errorAnswer, submittedAnswer, unfinishedAnswer } from "./answers.ts";

/** Options of a {@link TinkerTransport}. */
export interface TransportOptions {
  /** Without `/api/v1`. */
  readonly url: string;
  readonly apiKey: string | null;
  /** How long a server may be out of reach or overloaded before a call fails, milliseconds. */
  readonly patienceMs: number;
}

/** A body and its media type. */
export interface Body {
  readonly contentType: "application/json" | "application/x-protobuf";
  readonly bytes: string | Uint8Array;
}

/** A successful answer, not yet read. */
export interface Answer {
  readonly isProtobuf: boolean;
  readonly bytes: Uint8Array;
}

interface CallOptions {
  readonly signal?: AbortSignal | undefined;
  readonly headers?: Readonly<Record<string, string>> | undefined;
}

/** A server holds a poll for up to five minutes; asking again sooner keeps no idle socket waiting for it. */
const POLL_TIMEOUT_MS = 60_000;

/** After a poll that found nothing: most servers hold it for long, and one that answers at once must not be kept busy with it. */
const POLL_PAUSE_MS = 100;

/** A JSON body. */
export const json = (value: object): Body => ({ contentType: "application/json", bytes: JSON.stringify(value) });

export class TinkerTransport {
  readonly #options: TransportOptions;
  readonly #agent = new Agent({ headersTimeout: POLL_TIMEOUT_MS, bodyTimeout: POLL_TIMEOUT_MS, keepAliveTimeout: 30_000 });
  /** Requests that are under way or will be repeated. */
  readonly #calls = new Set<LinkedAbort>();
  #isClosed = false;

  constructor(options: TransportOptions) {
    this.#options = { ...options, url: options.url.replace(/\/+$/, "") };
  }

  /** What the server calls itself at its root; null where it answers nothing readable. */
  async rootName(signal?: AbortSignal): Promise<string | null> {
    try {
      const { bytes } = await this.#exchange({ method: "GET", path: "/" }, { signal });
      return String((JSON.parse(Buffer.from(bytes).toString()) as { name?: unknown }).name);
    } catch {
      signal?.throwIfAborted();
      return null;
    }
  }

  async get<T>(path: string, schema: z.ZodType<T>, options: CallOptions = {}): Promise<T> {
    return this.read(await this.#retried({ method: "GET", path: `/api/v1/${path}` }, options), schema, path);
  }

  async post<T>(path: string, body: Body, schema: z.ZodType<T>, options: CallOptions = {}): Promise<T> {
    return this.read(await this.#retried({ method: "POST", path: `/api/v1/${path}`, body }, options), schema, path);
  }

  /** Posts work and gives the name of its future. The same body may be posted again when the answer is lost. */
  async submit(path: string, body: Body, options: CallOptions = {}): Promise<z.infer<typeof submittedAnswer>> {
    return this.post(path, body, submittedAnswer, options);
  }

  /** Waits for a future, however long it takes. `accepts` is what its result may be encoded as. */
  async future(
    requestId: string,
    type: string,
    { accepts, signal }: { readonly accepts?: string; readonly signal?: AbortSignal | undefined } = {},
  ): Promise<Answer> {
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
      const unfinished = unfinishedAnswer.safeParse(parsed(answer.bytes));
      if (!unfinished.success) return answer;
      if (!("error" in unfinished.data)) continue;
      const { error, category } = unfinished.data as { error: string; category?: string | null };
      const message = `The server could not carry out ${type}: ${error}`;
      throw category === "user" ? new ArgumentError(message) : new EngineError(message, { retryable: category === "server" });
    }
  }

  /** Reads a JSON answer. @throws EngineError `E_ENGINE` when it has another shape. */
  read<T>(answer: Answer | null, schema: z.ZodType<T>, what: string): T {
    const result = schema.safeParse(answer === null ? null : parsed(answer.bytes));
    if (result.success) return result.data;
    const [issue] = result.error.issues;
    throw new EngineError(`The answer to ${what} is not of the Tinker protocol: ${issue?.path.join(".") ?? ""} ${issue?.message ?? ""}`);
  }

  /** Ends every call under way with `E_ENGINE`, and every later one. */
  async close(): Promise<void> {
    this.#isClosed = true;
    for (const call of this.#calls) call.abort(closedError());
    await this.#agent.destroy();
  }

  /** Repeats what failed for a reason that passes, until `close` at the latest. Null = a poll found nothing yet. */
  async #retried(request: Exchange, options: CallOptions): Promise<Answer | null> {
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

  async #exchange(request: Exchange, { signal, headers = {} }: CallOptions): Promise<Answer> {
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
    throw toError(statusCode, request.path.replace("/api/v1/", ""), parsed(bytes));
  }
}

interface Exchange {
  readonly method: "GET" | "POST";
  readonly path: string;
  readonly body?: Body;
  /** Whether it asks for a future. */
  readonly isPoll?: boolean;
}

const closedError = (): EngineError => new EngineError("The engine on the Tinker server is closed");

/** Nothing is wrong and nothing is there yet. */
class StillPending extends Error {}

function parsed(bytes: Uint8Array): unknown {
  try {
    return JSON.parse(Buffer.from(bytes).toString());
  } catch {
    return null;
  }
}

/** A status in terms of the error model. */
function toError(status: number, what: string, body: unknown): WhetstoneError {
  const said = errorAnswer.safeParse(body);
  const message = `The Tinker server answered ${what} with ${status}${said.success ? `: ${said.data}` : ""}`;
  switch (status) {
    case 401:
    case 403:
      return new ConfigError(`${message}. Check the API key of the engine`, { param: "engine" });
    case 402:
      return new EngineError(`${message}. The account has to be in order before it goes on`);
    case 404:
      return new NotFoundError(message);
    case 409:
      return new ConflictError(message);
    case 413:
      return new TooLargeError(message);
    case 429:
      return new OverloadedError(message, { retryable: true });
    case 422:
      return new ArgumentError(message);
    default:
      // 425: a checkpoint is being written. 408: the server gave up waiting for its own engine.
      return new EngineError(message, { retryable: status >= 500 || status === 408 || status === 425 });
  }
}
