import type { Server } from "node:http";
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

/** Ends a server: a keep-alive connection that falls idle later would hold `close` for seconds, so idle ones are closed as they appear. */
export async function closeServer(server: Server, { graceMs }: { readonly graceMs: number }): Promise<void> {
  const closed = new Promise<void>((resolve) => server.close(() => resolve()));
  const idle = setInterval(() => server.closeIdleConnections(), 20);
  const cut = setTimeout(() => server.closeAllConnections(), graceMs);
  await closed;
  clearInterval(idle);
  clearTimeout(cut);
}
