/** One HTTP request and its whole response in memory, on undici's dispatch interface. */
import type { IncomingHttpHeaders } from "node:http";
import type { Readable } from "node:stream";
import type { Dispatcher } from "undici";

/** A complete HTTP response in memory, with any status. */
export interface HttpAnswer {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  /** Body chunks in the order received. */
  readonly pieces: readonly Buffer[];
}

/**
 * Sends a request and collects the whole response.
 *
 * Uses `dispatch` because `Agent.request` creates a stream for every body, which costs time that a short response does not need.
 *
 * @throws the signal's reason, also while the request waits for a connection; errors of undici unchanged.
 */
export function exchange(agent: Dispatcher, options: Dispatcher.DispatchOptions, signal: AbortSignal | undefined): Promise<HttpAnswer> {
  return new Promise((resolve, reject) => {
    agent.dispatch(options, new Exchange(resolve, reject, options.body, signal));
  });
}

/** Returns the body as text, without a byte order mark. */
export function answerText({ pieces }: HttpAnswer): string {
  const text = (pieces.length === 1 ? pieces[0]! : Buffer.concat(pieces)).toString("utf8");
  return text.charCodeAt(0) === 0xfeff ? text.slice(1) : text;
}

/** Returns the body in newly allocated memory, because a chunk is only a view of the socket's read buffer. */
export function bytesOf({ pieces }: HttpAnswer): Uint8Array {
  const bytes = new Uint8Array(pieces.reduce((sum, { length }) => sum + length, 0));
  let offset = 0;
  for (const piece of pieces) {
    bytes.set(piece, offset);
    offset += piece.length;
  }
  return bytes;
}

/**
 * Dispatch handler of one request; settles the promise of {@link exchange}. It is also the listener of the signal: one object without
 * closures, because thousands of requests may be in flight.
 */
class Exchange implements Dispatcher.DispatchHandler {
  readonly #resolve: (answer: HttpAnswer) => void;
  readonly #reject: (reason: unknown) => void;
  readonly #signal: AbortSignal | undefined;
  readonly #pieces: Buffer[] = [];
  /** Body that is sent; null after a failure. */
  #body: Dispatcher.DispatchOptions["body"];
  /** Controller of the request; undefined while it waits for a connection. */
  #controller: Dispatcher.DispatchController | undefined;
  #status = 0;
  #headers: IncomingHttpHeaders = NO_HEADERS;

  constructor(
    resolve: (answer: HttpAnswer) => void,
    reject: (reason: unknown) => void,
    body: Dispatcher.DispatchOptions["body"],
    signal: AbortSignal | undefined,
  ) {
    this.#resolve = resolve;
    this.#reject = reject;
    this.#body = body;
    this.#signal = signal;
    signal?.addEventListener("abort", this);
  }

  /** Handles the abort event of the signal. */
  handleEvent(): void {
    const reason: unknown = this.#signal?.reason;
    this.#controller?.abort(reason as Error);
    this.#fail(reason);
  }

  onRequestStart(controller: Dispatcher.DispatchController): void {
    this.#controller = controller;
    // The signal aborted while the request waited for a connection.
    if (this.#signal?.aborted) controller.abort(this.#signal.reason as Error);
  }

  /** Records status and headers. Also called for 1xx responses; the last call is the final response. */
  onResponseStart(_: Dispatcher.DispatchController, status: number, headers: IncomingHttpHeaders): void {
    this.#status = status;
    this.#headers = headers;
  }

  onResponseData(_: Dispatcher.DispatchController, piece: Buffer): void {
    this.#pieces.push(piece);
  }

  onResponseEnd(): void {
    this.#signal?.removeEventListener("abort", this);
    this.#resolve({ status: this.#status, headers: this.#headers, pieces: this.#pieces });
  }

  onResponseError(_: Dispatcher.DispatchController, error: Error): void {
    this.#fail(error);
  }

  /** Rejects the promise, and releases the sent body. */
  #fail(reason: unknown): void {
    this.#signal?.removeEventListener("abort", this);
    // A file stream that was being sent must be closed.
    if (isReadable(this.#body)) this.#body.on("error", ignore).destroy();
    this.#body = null;
    this.#reject(reason);
  }
}

/** Headers before the response starts. */
const NO_HEADERS: IncomingHttpHeaders = Object.freeze({});

/** Whether a sent body is a stream, rather than text or bytes. */
function isReadable(body: Dispatcher.DispatchOptions["body"]): body is Readable {
  return typeof body === "object" && body !== null && "destroy" in body && typeof body.destroy === "function";
}

function ignore(): void {}
