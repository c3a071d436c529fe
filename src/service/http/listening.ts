/** Life of a server: start of listening, tracking of sockets and requests, a limit on silent requests, and the shutdown. */
import type { IncomingMessage, Server, ServerResponse } from "node:http";
import { Server as TlsServer } from "node:https";
import type { AddressInfo, Socket } from "node:net";
import { ConfigError } from "../../base/errors.ts";

/** Tracks the sockets of a server, so that they can be unreferenced and do not keep the process alive. */
export function trackSockets(server: Server): { unref(): void } {
  const sockets = new Set<Socket>();
  let isUnreferenced = false;
  server.on("connection", (socket: Socket) => {
    if (isUnreferenced) socket.unref();
    sockets.add(socket);
    socket.once("close", () => sockets.delete(socket));
  });
  return {
    unref() {
      isUnreferenced = true;
      server.unref();
      for (const socket of sockets) socket.unref();
    },
  };
}

/** Max connections that wait to be accepted. The operating system discards more, and a client tries again after a second or longer. */
const BACKLOG = 4096;

/** Loopback addresses by address of all interfaces: a server that listens on the latter is reachable on the former. */
const LOOPBACK_ADDRESSES: Readonly<Record<string, string>> = { "0.0.0.0": "127.0.0.1", "::": "::1" };

/**
 * Starts listening.
 *
 * @returns the URL, without a trailing slash.
 * @throws ConfigError `E_CONFIG` if the server cannot listen on `host` and `port`.
 */
export function startListening(server: Server, { host, port }: { readonly host: string; readonly port: number }): Promise<string> {
  return new Promise((resolve, reject) => {
    server.once("error", (cause: NodeJS.ErrnoException) => {
      const isPortInUse = cause.code === "EADDRINUSE";
      const problem = isPortInUse ? "the port is in use. Choose another, or 0 for any free one" : cause.message;
      reject(new ConfigError(`The service cannot listen on ${host}:${port}: ${problem}`, { cause, param: "port" }));
    });
    server.listen({ port, host, backlog: BACKLOG }, () => {
      const { port: actualPort } = server.address() as AddressInfo;
      const address = LOOPBACK_ADDRESSES[host] ?? host;
      const scheme = server instanceof TlsServer ? "https" : "http";
      resolve(`${scheme}://${address.includes(":") ? `[${address}]` : address}:${actualPort}`);
    });
  });
}

/** Milliseconds between two closings of idle connections during a shutdown. */
const IDLE_CLOSE_MS = 20;
/** Max milliseconds between cutting off requests and closing their connections, for the final bytes. */
const FINAL_BYTES_MS = 1000;

/** Unanswered requests of a server. */
export interface UnansweredRequests {
  /** Number of running requests. */
  readonly count: number;
  /** Resolves when no request is running, or after `timeoutMs`. To be called once. */
  finished(timeoutMs: number): Promise<void>;
}

/** Tracks the running requests of a server. Call it before the first request. */
export function trackRequests(server: Server): UnansweredRequests {
  let running = 0;
  let onIdle: () => void = () => undefined;
  server.on("request", (_request, response: ServerResponse) => {
    running++;
    response.once("close", () => {
      running--;
      if (running === 0) onIdle();
    });
  });
  return {
    get count() {
      return running;
    },
    async finished(timeoutMs) {
      if (running === 0 || timeoutMs <= 0) return;
      let timer: NodeJS.Timeout | undefined;
      await new Promise<void>((resolve) => {
        onIdle = resolve;
        timer = setTimeout(resolve, timeoutMs);
      });
      clearTimeout(timer);
    },
  };
}

/**
 * Times out requests that receive no body bytes for `silenceMs`. The timeout is reported as a `clientError`, like Node's own request
 * timeout.
 */
export function limitSilence(server: Server, silenceMs: number): void {
  server.on("request", (request: IncomingMessage) => {
    const { socket, headers } = request;
    if (headers["transfer-encoding"] === undefined && Number(headers["content-length"] ?? 0) === 0) return;
    let lastBytesRead = socket.bytesRead;
    let lastReadAtMs = performance.now();
    const check = (): void => {
      if (request.complete || socket.destroyed) return clearInterval(timer);
      // If the read buffer is full, this process is slow, and not the client.
      const isBufferFull = request.readableLength >= request.readableHighWaterMark;
      if (socket.bytesRead !== lastBytesRead || isBufferFull) {
        lastBytesRead = socket.bytesRead;
        lastReadAtMs = performance.now();
      } else if (performance.now() - lastReadAtMs >= silenceMs) {
        clearInterval(timer);
        server.emit("clientError", Object.assign(new Error("Request timeout"), { code: "ERR_HTTP_REQUEST_TIMEOUT" }), socket);
      }
    };
    // Four checks per period: a request ends at most a quarter of the period late.
    const timer = setInterval(check, silenceMs / 4).unref();
  });
}

/**
 * Closes a server: waits up to `graceMs` for running requests, then cuts off those that still run. The server keeps listening meanwhile, so
 * that new requests get an explanatory error.
 *
 * @param graceMs - Max milliseconds to wait.
 * @param onCut - Called before the remaining requests are cut off. They then have one second (or `graceMs`, if shorter) for their final
 *   bytes.
 */
export async function closeServer(
  server: Server,
  { graceMs, requests, onCut }: { readonly graceMs: number; readonly requests: UnansweredRequests; readonly onCut: () => void },
): Promise<void> {
  await requests.finished(graceMs);
  onCut();
  const closed = new Promise<void>((resolve) => server.close(() => resolve()));
  // `close` would wait seconds for keep-alive connections that become idle later, so idle connections are closed continuously.
  const closeIdle = setInterval(() => server.closeIdleConnections(), IDLE_CLOSE_MS);
  const closeAll = setTimeout(() => server.closeAllConnections(), Math.min(graceMs, FINAL_BYTES_MS));
  await closed;
  clearInterval(closeIdle);
  clearTimeout(closeAll);
}
