/** HTTP server that both environment protocols share: validation of its options, protection from web pages, and its end. */
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { checkCount } from "../../client/address.ts";
import type { ScenarioSource } from "../../environment/index.ts";
import { ConfigError } from "../../../base/errors.ts";
import { shown } from "../../../base/util/shown.ts";

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
 * Returns the reason to reject a request as one of a web page; null to accept it.
 *
 * Without this check, any web page that the user opens could call the tools of a server on a loopback address. Browsers send an `Origin`
 * with such requests. A page may also use a host name of its own that resolves to the loopback address (DNS rebinding), which `Host` shows.
 *
 * @param isLoopback - Whether the server listens on a loopback address.
 */
function refusalOf({ headers }: IncomingMessage, isLoopback: boolean): string | null {
  if (headers.origin !== undefined) return "Requests of web pages are rejected: expected no header `Origin`";
  const host = /^(?<name>\[[^\]]*\]|[^:]*)(?::\d+)?$/u.exec(headers.host ?? "")?.groups?.["name"] ?? "";
  if (!isLoopback || host === "" || LOOPBACK.test(host)) return null;
  return `Expected the header \`Host\` to name this machine, such as 127.0.0.1 or localhost, got ${shown(headers.host)}`;
}

/** Names and addresses of this machine. */
const LOOPBACK = /^(?:localhost|127(?:\.\d{1,3}){3}|\[?::1\]?)$/iu;

/**
 * Starts an HTTP server. Requests of web pages are answered 403: requests with an `Origin`, and on a loopback address requests with the
 * `Host` of another machine.
 *
 * @param listener - Answers a request.
 * @param endSessions - Ends all sessions when the server is closed.
 * @throws ConfigError `E_CONFIG` for an invalid `port` or `maxSessions`, and the error of `listen`, such as `EADDRINUSE`.
 */
export async function listenForEpisodes(
  { host = "127.0.0.1", port = 0, maxSessions }: ServeOptions,
  listener: (request: IncomingMessage, response: ServerResponse) => unknown,
  endSessions: () => Promise<void>,
): Promise<{
  readonly http: Server;
  readonly server: EnvironmentServer;
  /** Returns the reason to reject an upgrade request; null to accept it. `listener` only gets requests that passed this check. */
  readonly rejectionOf: (request: IncomingMessage) => string | null;
}> {
  checkCount("port", port, 0);
  checkCount("maxSessions", maxSessions, 1);
  const rejectionOf = (request: IncomingMessage) => {
    const boundAddress = (http.address() as AddressInfo | null)?.address ?? "";
    return refusalOf(request, LOOPBACK.test(boundAddress));
  };
  const http = createServer((request, response) => {
    const detail = rejectionOf(request);
    if (detail === null) return void listener(request, response);
    response.writeHead(403, { "content-type": "application/json", connection: "close" }).end(JSON.stringify({ detail }));
  });
  await new Promise<void>((resolve, reject) => {
    http.once("error", reject).listen(port, host, resolve);
  });
  const close = async (): Promise<void> => {
    const closed = new Promise<void>((resolve) => http.close(() => resolve()));
    await endSessions();
    http.closeAllConnections();
    await closed;
  };
  const { address, family, port: boundPort } = http.address() as AddressInfo;
  const url = `http://${family === "IPv6" ? `[${address}]` : address}:${boundPort}`;
  return { http, rejectionOf, server: { url, close, [Symbol.asyncDispose]: close } };
}

/** Returns the scenario at an index of a source; a list repeats after its end. @throws ConfigError `E_CONFIG` for an empty list. */
export function scenarioAt<S>(source: ScenarioSource<S>, index: number, split: string): S {
  if (typeof source === "function") return source(index);
  if (source.length > 0) return source[index % source.length] as S;
  throw new ConfigError(`The split \`${split}\` has no scenarios`, { param: "split" });
}
