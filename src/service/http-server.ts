/** The HTTP server: everything Node would answer by itself, with an empty body, is answered with the error body of the routes. */
import { createServer, STATUS_CODES, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { Socket } from "node:net";
import type { Duplex } from "node:stream";
import { getRequestListener } from "@hono/node-server";
import { errorResponse, toErrorBody, type ErrorFields, type ErrorStatus } from "./http-errors.ts";

/** Milliseconds in which a client can read the answer to a malformed request before its connection is reset. */
const LINGER_MS = 1000;

/** Longer than clients keep idle sockets: if both ends close at the same moment, the client loses a request. */
const KEEP_ALIVE_MS = 75_000;

/** Time for a whole request, an upload included. Silent ones are ended much earlier; Node's default would cut a long upload. */
const REQUEST_MS = 60 * 60_000;

type Refusal = readonly [ErrorStatus, ErrorFields];

function malformed(problem: string): Refusal {
  return [400, { message: `Malformed request: ${problem}`, code: "E_ARGUMENT" }];
}

/** Errors of Node's parser that have a status of their own; all others are 400. */
const PARSER_REFUSALS: Readonly<Record<string, Refusal>> = {
  HPE_HEADER_OVERFLOW: [431, { message: "Expected a request line and headers of at most 16 KiB in total. Send less", code: "E_TOO_LARGE" }],
  HPE_CHUNK_EXTENSIONS_OVERFLOW: [413, { message: "Expected chunk extensions of at most 16 KiB. Send none", code: "E_TOO_LARGE" }],
  ERR_HTTP_REQUEST_TIMEOUT: [
    408,
    { message: "The request was not received in time. Send its headers and body without a pause", code: "E_REQUEST_TIMEOUT" },
  ],
};

/** Serializes an error as a whole HTTP/1.1 message, for sockets without a response object. */
function rawResponse([status, fields]: Refusal): string {
  const body = JSON.stringify(toErrorBody(status, fields));
  return [
    `HTTP/1.1 ${status} ${STATUS_CODES[status] ?? ""}`,
    `Date: ${new Date().toUTCString()}`,
    "Connection: close",
    "Content-Type: application/json",
    `Content-Length: ${Buffer.byteLength(body)}`,
    "",
    body,
  ].join("\r\n");
}

/** Answers on a socket whose request cannot be parsed, and closes it. */
function refuse(socket: Duplex, refusal: Refusal): void {
  socket.end(rawResponse(refusal));
  // Destroying it now would reset the connection, and with unread input the client would lose the answer.
  setTimeout(() => socket.destroy(), LINGER_MS).unref();
}

/** Returns the answer to a request that comes while the service ends; its connection is closed. */
export function shuttingDown(): Response {
  const message = "The service is shutting down; send the request again once it is back";
  return errorResponse(503, { message, code: "E_OVERLOADED", headers: { "Retry-After": "1", Connection: "close" } });
}

/**
 * Creates the server around an app.
 *
 * @param fetch - Handler of the requests that can be parsed.
 */
export function createHttpServer(fetch: Parameters<typeof getRequestListener>[0]): Server {
  // The adapter refuses a path with a backslash, or a request without a host, before the app sees it.
  const errorHandler = (error: unknown) => {
    const [status, fields] = malformed(error instanceof Error ? error.message : "it cannot be read");
    return errorResponse(status, fields);
  };
  const listener = getRequestListener(fetch, { errorHandler });
  /** Response in progress per connection: bytes written around it would corrupt it. */
  const responses = new WeakMap<Duplex, ServerResponse>();
  const refused = new WeakSet<Duplex>();
  const server = createServer(
    { keepAliveTimeout: KEEP_ALIVE_MS, requestTimeout: REQUEST_MS, requireHostHeader: false },
    (request, response) => {
      responses.set(request.socket, response);
      void listener(request, response);
    },
  );

  server.on("clientError", (error: NodeJS.ErrnoException & { reason?: unknown }, socket: Socket) => {
    // The rest of a refused request arrives as further errors.
    if (refused.has(socket) && error.code?.startsWith("HPE_")) return;
    const response = responses.get(socket);
    const isAnswering = response?.headersSent === true && !response.writableFinished;
    if (error.code === "ECONNRESET" || !socket.writable || isAnswering || refused.has(socket)) {
      socket.destroy(error);
      return;
    }
    refused.add(socket);
    const reason = typeof error.reason === "string" && error.reason !== "" ? error.reason : error.message;
    refuse(socket, PARSER_REFUSALS[error.code ?? ""] ?? malformed(reason));
  });

  server.on("checkExpectation", (request: IncomingMessage, response: ServerResponse) => {
    const [status, fields]: Refusal = [
      417,
      { message: "Expected the header 'Expect' to be '100-continue' or absent", param: "Expect", code: "E_ARGUMENT" },
    ];
    response.writeHead(status, { "Content-Type": "application/json", Connection: "close" });
    response.end(JSON.stringify(toErrorBody(status, fields)));
    request.resume();
  });

  server.on("connect", (_request: IncomingMessage, socket: Duplex) => {
    socket.on("error", () => undefined);
    refuse(socket, [405, { message: "This server is no proxy: it does not support CONNECT", code: "E_METHOD" }]);
  });
  return server;
}
