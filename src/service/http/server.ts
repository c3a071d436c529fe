/**
 * HTTP server of the service's app: Node's server, whose requests are prepared and wait for a time slice before the app handles them.
 *
 * Errors that Node would answer itself with an empty body get the error body of the routes: requests that the parser rejects, timeouts,
 * `CONNECT`, and unsupported `Expect` headers.
 */
import { createServer, STATUS_CODES, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import { createServer as createTlsServer } from "node:https";
import type { Socket } from "node:net";
import type { Duplex } from "node:stream";
import type { SecureContextOptions } from "node:tls";
import { getRequestListener } from "@hono/node-server";
import { newGroup } from "../../base/util/request-group.ts";
import { TimeSlices } from "../../base/util/time-slices.ts";
import { presentedKey } from "./auth.ts";
import { errorResponse, toErrorBody, type ErrorBodyFields, type ErrorStatus } from "./errors.ts";
import { newRequestId, sendRequestId } from "./request-id.ts";

/** Milliseconds that a client has to read the response to a malformed request before its connection is reset. */
const LINGER_MS = 1000;

/**
 * Milliseconds an idle connection is kept. Longer than clients keep idle sockets, because a client loses a request if both ends close at
 * the same moment.
 */
const KEEP_ALIVE_MS = 75_000;

/**
 * Max milliseconds for receiving a whole request, including uploads. Node's default would abort long uploads; silent requests end much
 * earlier (`limitSilence`).
 */
const REQUEST_MS = 60 * 60_000;

/** Whether a request is answered at once, however many other requests arrive. */
function isProbe({ url = "" }: IncomingMessage): boolean {
  return /^\/(?:health|ready)(?:\?|$)/u.test(url);
}

/** Returns the client of a request, which shares the time slices with other clients: its credential, which is checked later. */
function clientOf({ headers }: IncomingMessage): string {
  return presentedKey(headers) ?? "";
}

/** Status and fields of an error response that is written without a route. */
type Refusal = readonly [ErrorStatus, ErrorBodyFields];

function malformed(problem: string): Refusal {
  return [400, { message: `Malformed request: ${problem}`, code: "E_ARGUMENT" }];
}

/** Responses to parser errors with a specific status; all other parser errors are 400. */
const PARSER_REFUSALS: Readonly<Record<string, Refusal>> = {
  HPE_HEADER_OVERFLOW: [431, { message: "Expected a request line and headers of at most 16 KiB in total. Send less", code: "E_TOO_LARGE" }],
  HPE_CHUNK_EXTENSIONS_OVERFLOW: [413, { message: "Expected chunk extensions of at most 16 KiB. Send none", code: "E_TOO_LARGE" }],
  ERR_HTTP_REQUEST_TIMEOUT: [
    408,
    { message: "The request was not received in time. Send its headers and body without a pause", code: "E_REQUEST_TIMEOUT" },
  ],
};

/** Serializes an error as a complete HTTP/1.1 message, for sockets without a response object. */
function rawResponse([status, fields]: Refusal): string {
  const body = JSON.stringify(toErrorBody(status, fields));
  return [
    `HTTP/1.1 ${status} ${STATUS_CODES[status] ?? ""}`,
    `Date: ${new Date().toUTCString()}`,
    "Connection: close",
    "Content-Type: application/json",
    `X-Request-Id: ${newRequestId()}`,
    `Content-Length: ${Buffer.byteLength(body)}`,
    "",
    body,
  ].join("\r\n");
}

/** Answers a request that cannot be parsed and closes its socket. */
function refuse(socket: Duplex, refusal: Refusal): void {
  socket.end(rawResponse(refusal));
  // Destroying the socket immediately would reset the connection, and the client would lose the response while input is unread.
  setTimeout(() => socket.destroy(), LINGER_MS).unref();
}

/** Returns the 503 response to a request that arrives during shutdown. The response closes its connection. */
export function shuttingDown(): Response {
  const message = "The service is shutting down; send the request again once it is back";
  return errorResponse(503, { message, code: "E_OVERLOADED", headers: { "Retry-After": "1", Connection: "close" } });
}

/** Options of {@link createHttpServer}. */
interface HttpServerOptions {
  /**
   * Changes a request before it is handled, or resolves to a response, which answers the request instead. Must not reject. Undefined for a
   * request that needs no wait. @default changes nothing
   */
  readonly prepare?: (request: IncomingMessage) => Promise<Response | void> | undefined;
  /** Time slices that the requests share with other work of the service. @default slices of their own */
  readonly slices?: TimeSlices;
  /** Certificate of a server that speaks HTTPS. @default HTTP */
  readonly tls?: SecureContextOptions | undefined;
}

/**
 * Creates the HTTP server of an app. The server does not listen yet.
 *
 * Requests other than probes share the event loop in time slices. An accepted connection postpones the slices: the event loop accepts one
 * connection per turn, so a slice in each turn would delay the last of 1,000 waiting connections by 1,000 slices.
 *
 * @param fetch - Handler of the requests that can be parsed.
 */
export function createHttpServer(
  fetch: Parameters<typeof getRequestListener>[0],
  { prepare = () => undefined, slices = new TimeSlices(), tls }: HttpServerOptions = {},
): Server {
  // The adapter rejects a path with a backslash, or a request without a host, before the app sees the request.
  const errorHandler = (error: unknown) => {
    const [status, fields] = malformed(error instanceof Error ? error.message : "it cannot be read");
    return errorResponse(status, fields);
  };
  const listener = getRequestListener(fetch, { errorHandler });
  /** Last response of each connection. */
  const lastResponses = new WeakMap<Duplex, ServerResponse>();
  const onRequest = (request: IncomingMessage, response: ServerResponse): void => {
    lastResponses.set(request.socket, response);
    sendRequestId(request, response);
    const preparing = prepare(request);
    const waiting = isProbe(request) ? undefined : slices.enter(newGroup(clientOf(request)));
    // Most requests need no wait, and are handled in the same turn of the event loop.
    if (preparing === undefined && waiting === undefined) {
      void listener(request, response);
      return;
    }
    void Promise.all([preparing, waiting]).then(([refusal]) => {
      const answer = refusal instanceof Response ? getRequestListener(() => refusal) : listener;
      // The client may have left meanwhile.
      if (!response.destroyed) void answer(request, response);
    });
  };
  const options = { keepAliveTimeout: KEEP_ALIVE_MS, requestTimeout: REQUEST_MS, requireHostHeader: false };
  const server: Server = tls === undefined ? createServer(options, onRequest) : createTlsServer({ ...options, ...tls }, onRequest);
  server.on("connection", () => slices.postpone());
  answerParserErrors(server, lastResponses);
  rejectExpectations(server);
  rejectConnect(server);
  return server;
}

/**
 * Answers requests that the parser rejects, and timeouts of requests (`limitSilence`), and closes their connections.
 *
 * @param lastResponses - Last response of each connection. The answer is written to the socket directly, which would corrupt a response in
 *   progress.
 */
function answerParserErrors(server: Server, lastResponses: WeakMap<Duplex, ServerResponse>): void {
  /** Connections with a request that was answered with an error of the parser. */
  const refused = new WeakSet<Duplex>();
  server.on("clientError", (error: NodeJS.ErrnoException & { reason?: unknown }, socket: Socket) => {
    // The further bytes of a rejected request cause further errors of the parser.
    if (refused.has(socket) && error.code?.startsWith("HPE_")) return;
    const response = lastResponses.get(socket);
    // Bytes between the headers and the end of a response would corrupt it.
    const isInResponse = response?.headersSent === true && !response.writableEnded;
    if (error.code === "ECONNRESET" || !socket.writable || isInResponse || refused.has(socket)) {
      socket.destroy(error);
      return;
    }
    refused.add(socket);
    const reason = typeof error.reason === "string" && error.reason !== "" ? error.reason : error.message;
    const refusal = PARSER_REFUSALS[error.code ?? ""] ?? malformed(reason);
    // If the last request arrived completely, the error is one of the next request: the response to the last one must be sent first.
    const isEarlierPending = response !== undefined && !response.writableFinished && (response.writableEnded || response.req.complete);
    if (isEarlierPending) response.once("finish", () => refuse(socket, refusal));
    else refuse(socket, refusal);
  });
}

/** Rejects the method CONNECT, for which Node creates no response. */
function rejectConnect(server: Server): void {
  server.on("connect", (_request: IncomingMessage, socket: Duplex) => {
    socket.on("error", () => undefined);
    refuse(socket, [405, { message: "This server is no proxy: it does not support CONNECT", code: "E_METHOD" }]);
  });
}

/** Rejects requests with a header `Expect` other than `100-continue`. */
function rejectExpectations(server: Server): void {
  server.on("checkExpectation", (request: IncomingMessage, response: ServerResponse) => {
    const [status, fields]: Refusal = [
      417,
      { message: "Expected the header 'Expect' to be '100-continue' or absent", param: "Expect", code: "E_ARGUMENT" },
    ];
    sendRequestId(request, response);
    response.writeHead(status, { "Content-Type": "application/json", Connection: "close" });
    response.end(JSON.stringify(toErrorBody(status, fields)));
    request.resume();
  });
}
