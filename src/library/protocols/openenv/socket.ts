/** WebSocket of a client's session with an OpenEnv server: one request at a time, timeouts, and the end of the connection. */
import PQueue from "p-queue";
import type { WebSocket } from "ws";
import { ConnectionError, ProtocolError } from "../../client/errors.ts";
import { abortable, linkAbort } from "../../../base/util/abort.ts";
import { deferred, type Deferred } from "../../../base/util/deferred.ts";
import { shown } from "../../../base/util/shown.ts";
import { parseJson } from "../../../base/util/values.ts";
import type { EnvironmentServerOptions } from "../episode/client-options.ts";
import { frame, frameError } from "./frames.ts";

/** Maximum size of a received message in bytes, as in OpenEnv's own client. */
const MAX_MESSAGE_BYTES = 100 * 1024 * 1024;

/** Interval of the pings that keep an idle connection open while the model samples, in milliseconds, as in OpenEnv's own client. */
const PING_INTERVAL_MS = 20_000;

/**
 * WebSocket of one OpenEnv session. Requests are sent one at a time. After a failure of the connection, all further requests fail with the
 * error of that failure.
 */
export class OpenEnvSocket {
  readonly #url: string;
  readonly #socket: WebSocket;
  readonly #timeoutMs: number;
  readonly #signal: AbortSignal;
  /** Queue of requests, one at a time, because responses have no ids. */
  readonly #queue = new PQueue({ concurrency: 1 });
  /** Resolves when the connection is open; rejects if it fails before. */
  readonly #opened = deferred<void>();
  /** Whether the connection has been opened; stays true after its end. */
  #isOpen = false;
  #pingTimer: NodeJS.Timeout | undefined;
  /** Request in progress. */
  #pending: { readonly request: string; readonly answer: Deferred<string> } | null = null;
  /** Error with which all further requests fail; null until the connection has failed or was closed. */
  #failure: unknown = null;

  private constructor(socket: WebSocket, { baseUrl, timeoutMs, signal }: EnvironmentServerOptions) {
    this.#url = baseUrl;
    this.#socket = socket;
    this.#timeoutMs = timeoutMs;
    this.#signal = signal;
    signal.addEventListener("abort", this.#onAbort, { once: true });
    // Handled by `connect`, unless its signal aborts first.
    this.#opened.promise.catch(() => undefined);
    socket.on("open", () => {
      this.#isOpen = true;
      this.#pingTimer = setInterval(() => socket.ping(), PING_INTERVAL_MS).unref();
      this.#opened.resolve();
    });
    socket.on("message", (data) => this.#receive(textOf(data)));
    socket.on("error", (error) => this.#fail(this.#connectionError(error.message || error.name, error)));
    socket.on("close", (code, reason) => {
      const detail = reason.length === 0 ? "" : `: ${String(reason)}`;
      this.#fail(this.#connectionError(`closed with code ${code}${detail}`));
    });
  }

  /**
   * Opens the session.
   *
   * @throws ConnectionError `E_CONNECTION` if the server is unreachable or rejects the WebSocket.
   * @throws the signal's reason, or a TimeoutError.
   */
  static async connect(params: EnvironmentServerOptions): Promise<OpenEnvSocket> {
    const { baseUrl, headers, timeoutMs, signal } = params;
    signal.throwIfAborted();
    // Loaded on first use, so that importing the module stays fast.
    const { WebSocket } = await import("ws");
    const webSocketUrl = `${baseUrl.replace(/^http/u, "ws")}/ws`;
    const session = new OpenEnvSocket(new WebSocket(webSocketUrl, { headers, maxPayload: MAX_MESSAGE_BYTES }), params);
    const link = linkAbort(signal, { timeoutMs, label: `connecting to the OpenEnv server ${baseUrl}` });
    try {
      await abortable(session.#opened.promise, link.signal);
      return session;
    } catch (error) {
      session.#fail(error);
      throw error;
    } finally {
      link.dispose();
    }
  }

  /**
   * Sends a request after the earlier ones have ended, and returns the data of the response of type `expected`.
   *
   * @throws the error of an `error` frame (see `frameError`), ProtocolError `E_PROTOCOL` for another response, or the error of the
   *   connection.
   */
  exchange(request: string, data: Readonly<Record<string, unknown>> | undefined, expected: string): Promise<Record<string, unknown>> {
    return this.#queue.add(() => this.#exchangeNow(request, data, expected));
  }

  /** Sends a request when it is its turn, and waits for the next message, which is its response. */
  async #exchangeNow(
    request: string,
    data: Readonly<Record<string, unknown>> | undefined,
    expected: string,
  ): Promise<Record<string, unknown>> {
    if (this.#failure !== null) throw this.#failure;
    const answer = deferred<string>();
    this.#pending = { request, answer };
    const link = linkAbort(this.#signal, { timeoutMs: this.#timeoutMs, label: `\`${request}\` of the OpenEnv server ${this.#url}` });
    try {
      this.#socket.send(JSON.stringify(data === undefined ? { type: request } : { type: request, data }));
      return this.#read(request, await abortable(answer.promise, link.signal), expected);
    } catch (error) {
      // After a timeout, the response may still arrive, and would be taken for the response to the next request.
      if (link.signal.aborted) this.#fail(error);
      throw error;
    } finally {
      this.#pending = null;
      link.dispose();
    }
  }

  /** Returns the data of a response. */
  #read(request: string, text: string, expected: string): Record<string, unknown> {
    const parsed = frame.safeParse(parseJson(text));
    if (!parsed.success)
      throw new ProtocolError(`Expected a message \`{ type, data }\` of the OpenEnv server ${this.#url}, got ${shown(text)}`);
    const { type, data } = parsed.data;
    if (type === "error") throw frameError(request, this.#url, data);
    if (type === expected) return data;
    throw new ProtocolError(`Expected the OpenEnv server ${this.#url} to answer \`${request}\` with \`${expected}\`, got \`${type}\``);
  }

  /** Ends the session; a request in progress fails. */
  close(): void {
    if (this.#failure !== null) return;
    this.#socket.send(JSON.stringify({ type: "close" }));
    this.#end(new ConnectionError(`The OpenEnv session with ${this.#url} is closed`, { retryable: false }));
    this.#socket.close();
  }

  /** Listener of the signal; a field, so that it can be removed. */
  readonly #onAbort = (): void => this.#fail(this.#signal.reason);

  /** Handles a message: the response to the request in progress, or a report of the server. */
  #receive(text: string): void {
    if (this.#pending !== null) return this.#pending.answer.resolve(text);
    // Before the first request and after an error, the server may report a problem of the session, such as its capacity.
    const parsed = frame.safeParse(parseJson(text));
    if (parsed.success && parsed.data.type === "error") this.#fail(frameError("connect", this.#url, parsed.data.data));
    else this.#fail(new ProtocolError(`The OpenEnv server ${this.#url} sent a message without a request: ${shown(text)}`));
  }

  /** Ends the session after a failure, without a closing handshake. */
  #fail(error: unknown): void {
    if (this.#failure !== null) return;
    this.#end(error);
    this.#socket.terminate();
  }

  /** Releases timers and listeners, and rejects all that waits for the connection. */
  #end(error: unknown): void {
    this.#failure = error;
    clearInterval(this.#pingTimer);
    this.#signal.removeEventListener("abort", this.#onAbort);
    this.#pending?.answer.reject(error);
    if (!this.#isOpen) this.#opened.reject(error);
  }

  /** Returns the error of a connection that could not be opened, or that was lost. */
  #connectionError(reason: string, cause?: unknown): ConnectionError {
    if (!this.#isOpen) {
      const message = `OpenEnv server ${this.#url} is unreachable at /ws: ${reason}; check that it runs and that the address has no path of its own`;
      return new ConnectionError(message, { cause, isBeforeSend: true });
    }
    const during = this.#pending === null ? "" : ` during \`${this.#pending.request}\``;
    const message = `The OpenEnv session with ${this.#url} was lost${during}: ${reason}; its environment ended with it, so only a new rollout can continue: set \`retries\``;
    return new ConnectionError(message, { cause });
  }
}

/** Returns a message as text, from any of the forms in which the package ws delivers it. */
function textOf(data: Buffer | ArrayBuffer | Buffer[]): string {
  return (Array.isArray(data) ? Buffer.concat(data) : Buffer.from(data as Buffer)).toString("utf8");
}
