import type { IncomingMessage, Server, ServerResponse } from "node:http";
import type { AddressInfo, Socket } from "node:net";
import { ConfigError } from "../errors.ts";

/** Sockets of a server, so that none of them keeps a process alive that wants to end. */
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

/** Starts to listen. @returns the URL, without a slash at the end. @throws ConfigError `E_CONFIG` when it cannot. */
export function listen(server: Server, { host, port }: { readonly host: string; readonly port: number }): Promise<string> {
  return new Promise((resolve, reject) => {
    server.once("error", (cause: NodeJS.ErrnoException) => {
      reject(
        new ConfigError(
          `The service cannot listen on ${host}:${port}: ${cause.code === "EADDRINUSE" ? "the port is in use. Choose another, or 0 for any free one" : cause.message}`,
          { cause, param: "port" },
        ),
      );
    });
    server.listen(port, host, () => {
      const { port: actual } = server.address() as AddressInfo;
      // Whoever listens everywhere is reached on loopback too.
      const reachable = host === "0.0.0.0" ? "127.0.0.1" : host === "::" ? "::1" : host;
      resolve(`http://${reachable.includes(":") ? `[${reachable}]` : reachable}:${actual}`);
    });
  });
}

/** Milliseconds that cut-off requests have for their last bytes. */
const CUT_MS = 1000;

/** Requests of a server that are not answered yet. */
export interface RunningRequests {
  /** Resolves once there are none, or after `timeoutMs`. */
  finished(timeoutMs: number): Promise<void>;
}

/** Counts the requests of a server from the first one on. */
export function trackRequests(server: Server): RunningRequests {
  let running = 0;
  let onIdle: () => void = () => undefined;
  server.on("request", (_request, response: ServerResponse) => {
    running++;
    response.once("close", () => {
      if (--running === 0) onIdle();
    });
  });
  return {
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

/** Ends requests whose body stops arriving for `silenceMs`, as Node ends those that take too long: with an error of its parser. */
export function limitSilence(server: Server, silenceMs: number): void {
  server.on("request", (request: IncomingMessage) => {
    const { socket, headers } = request;
    if (headers["transfer-encoding"] === undefined && Number(headers["content-length"] ?? 0) === 0) return;
    let seen = socket.bytesRead;
    let lastMs = performance.now();
    const timer = setInterval(() => {
      if (request.complete || socket.destroyed) return clearInterval(timer);
      // With a full buffer it is this process that is slow.
      if (socket.bytesRead !== seen || request.readableLength >= request.readableHighWaterMark) {
        seen = socket.bytesRead;
        lastMs = performance.now();
      } else if (performance.now() - lastMs >= silenceMs) {
        clearInterval(timer);
        server.emit("clientError", Object.assign(new Error("Request timeout"), { code: "ERR_HTTP_REQUEST_TIMEOUT" }), socket);
      }
    }, silenceMs / 4).unref();
  });
}

/**
 * Ends a server: waits for running requests at most `graceMs`, then cuts off the others. Meanwhile it listens, so that new requests learn
 * why they are refused.
 *
 * @param onCut - Called before requests are cut off, which then have a second (or `graceMs`, if that is less) for their last bytes.
 */
export async function closeServer(
  server: Server,
  { graceMs, requests, onCut }: { readonly graceMs: number; readonly requests: RunningRequests; readonly onCut: () => void },
): Promise<void> {
  await requests.finished(graceMs);
  onCut();
  const closed = new Promise<void>((resolve) => server.close(() => resolve()));
  // A keep-alive connection that falls idle later would hold `close` for seconds, so idle ones are closed as they appear.
  const idle = setInterval(() => server.closeIdleConnections(), 20);
  const cut = setTimeout(() => server.closeAllConnections(), Math.min(graceMs, CUT_MS));
  await closed;
  clearInterval(idle);
  clearTimeout(cut);
}
