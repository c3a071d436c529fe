import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { checkCount } from "../../client/address.ts";
import type { ScenarioSource } from "../../environment/index.ts";
import { ConfigError } from "../../errors.ts";

/** Options of a server for an environment. */
export interface ServeOptions {
  /** Address to listen on. The servers have no authentication: other addresses than loopback give every client access. @default "127.0.0.1" */
  readonly host?: string | undefined;
  /** Port, 0 for a free one. @default 0 */
  readonly port?: number | undefined;
  /** Maximum number of sessions at a time, at least 1; further ones are rejected. @default 64 */
  readonly maxSessions?: number | undefined;
}

/** Running server of an environment. */
export interface EnvironmentServer {
  /** Address for clients, such as `http://127.0.0.1:8000`. */
  readonly url: string;
  /**
   * Ends all sessions and stops listening.
   *
   * @returns a promise that resolves when the episodes have released their resources.
   * @example
   * ```ts
   * const stop = (server: EnvironmentServer) => process.once("SIGTERM", () => void server.close());
   * ```
   */
  close(): Promise<void>;
  /**
   * Closes the server at the end of an `await using` block.
   *
   * @returns a promise that resolves as `close` does.
   * @example
   * ```ts
   * const using = async (server: EnvironmentServer) => server[Symbol.asyncDispose]();
   * ```
   */
  [Symbol.asyncDispose](): Promise<void>;
}

/** Maximum size of a request in bytes. */
export const MAX_REQUEST_BYTES = 16 * 1024 * 1024;

/**
 * Starts an HTTP server.
 *
 * @param endSessions - Ends all sessions when the server is closed.
 * @throws ConfigError `E_CONFIG` for an invalid `port` or `maxSessions`, and the error of `listen`, such as `EADDRINUSE`.
 */
export async function listen(
  { host = "127.0.0.1", port = 0, maxSessions }: ServeOptions,
  listener: (request: IncomingMessage, response: ServerResponse) => unknown,
  endSessions: () => Promise<void>,
): Promise<{ readonly http: Server; readonly server: EnvironmentServer }> {
  checkCount("port", port, 0);
  checkCount("maxSessions", maxSessions, 1);
  const http = createServer((request, response) => void listener(request, response));
  await new Promise<void>((resolve, reject) => {
    http.once("error", reject).listen(port, host, resolve);
  });
  const close = async (): Promise<void> => {
    const closed = new Promise<void>((resolve) => http.close(() => resolve()));
    await endSessions();
    http.closeAllConnections();
    await closed;
  };
  const { address, family, port: actual } = http.address() as AddressInfo;
  const url = `http://${family === "IPv6" ? `[${address}]` : address}:${actual}`;
  return { http, server: { url, close, [Symbol.asyncDispose]: close } };
}

/** Returns the scenario at an index of a source; a list repeats after its end. @throws ConfigError `E_CONFIG` for an empty list. */
export function scenarioAt<S>(source: ScenarioSource<S>, index: number, split: string): S {
  if (typeof source === "function") return source(index);
  if (source.length > 0) return source[index % source.length] as S;
  throw new ConfigError(`The split \`${split}\` has no scenarios`, { param: "split" });
}
