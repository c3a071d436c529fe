import { once } from "node:events";
import { connect, type Socket } from "node:net";
import { afterEach, expect, test, vi } from "vitest";
import { errorBody } from "../../../src/base/schema/index.ts";
import { createHttpServer } from "../../../src/service/http/server.ts";
import { startListening } from "../../../src/service/http/listening.ts";

const DEADLINE_MS = 60_000;
const servers: ReturnType<typeof createHttpServer>[] = [];

afterEach(() => {
  vi.restoreAllMocks();
  for (const server of servers.splice(0)) {
    server.closeAllConnections();
    server.close();
  }
});

/** Starts a server around a handler. */
async function start(fetch: (request: Request) => Response | Promise<Response> = () => new Response("ok")) {
  const server = createHttpServer(fetch);
  servers.push(server);
  const url = new URL(await startListening(server, { host: "127.0.0.1", port: 0 }));
  return { server, port: Number(url.port) };
}

/** Sends bytes and reads until the server closes the connection. */
async function exchange(port: number, ...pieces: readonly (string | Buffer)[]): Promise<string> {
  const socket = connect(port, "127.0.0.1");
  const chunks: Buffer[] = [];
  socket.on("data", (chunk: Buffer) => chunks.push(chunk));
  const closed = once(socket, "close", { signal: AbortSignal.timeout(DEADLINE_MS) });
  for (const piece of pieces) socket.write(piece);
  await closed;
  return Buffer.concat(chunks).toString();
}

/** Splits an answer, and checks that it is one whole message with the error body. */
function errorOf(answer: string) {
  const [head = "", ...rest] = answer.split("\r\n\r\n");
  const headers = new Headers(
    head
      .split("\r\n")
      .slice(1)
      .map((line) => [line.slice(0, line.indexOf(":")), line.slice(line.indexOf(":") + 1).trim()]),
  );
  const text = rest.join("\r\n\r\n");
  expect(headers.get("content-type")).toBe("application/json");
  expect(headers.get("connection")).toBe("close");
  const body = headers.get("transfer-encoding") === "chunked" ? (text.split("\r\n")[1] ?? "") : text;
  const { error } = errorBody.parse(JSON.parse(body));
  expect(head.startsWith(`HTTP/1.1 ${error.code} `)).toBe(true);
  return error;
}

const HEAD = "POST /x HTTP/1.1\r\nHost: x\r\n";

test.each([
  ["a line that is no request", "hello\r\n\r\n", 400, "BadRequestError", "E_ARGUMENT"],
  ["a TLS handshake", Buffer.from("160301020001000100", "hex"), 400, "BadRequestError", "E_ARGUMENT"],
  ["a method that does not exist", "FETCH / HTTP/1.1\r\nHost: x\r\n\r\n", 400, "BadRequestError", "E_ARGUMENT"],
  ["a control character in the path", "GET /a\u0001 HTTP/1.1\r\nHost: x\r\n\r\n", 400, "BadRequestError", "E_ARGUMENT"],
  ["no host", "GET / HTTP/1.1\r\nConnection: close\r\n\r\n", 400, "BadRequestError", "E_ARGUMENT"],
  ["a header without a colon", `${HEAD}nonsense\r\n\r\n`, 400, "BadRequestError", "E_ARGUMENT"],
  ["two lengths", `${HEAD}Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n`, 400, "BadRequestError", "E_ARGUMENT"],
  ["headers over the limit", `${HEAD}A: ${"a".repeat(20_000)}\r\n\r\n`, 431, "RequestTooLargeError", "E_TOO_LARGE"],
  ["far more headers than are read", `${HEAD}A: ${"a".repeat(2_000_000)}\r\n\r\n`, 431, "RequestTooLargeError", "E_TOO_LARGE"],
  ["an expectation", `${HEAD}Expect: miracles\r\nContent-Length: 0\r\n\r\n`, 417, "ExpectationFailedError", "E_ARGUMENT"],
  ["a tunnel", "CONNECT a:80 HTTP/1.1\r\nHost: x\r\n\r\n", 405, "MethodNotAllowedError", "E_METHOD"],
])("answers %s with the error body of the routes", async (_name, bytes, status, type, code) => {
  const { port } = await start();
  expect(errorOf(await exchange(port, bytes))).toMatchObject({
    code: status,
    error_code: code,
    type,
    message: expect.stringMatching(/\S/),
  });
});

test("accepts all waiting connections, and answers the probe of the last one, before it handles their requests", async () => {
  // Time slices and their postponement do not end while the clock stands still.
  vi.spyOn(performance, "now").mockReturnValue(0);
  const handled: string[] = [];
  let connections = 0;
  const acceptedBefore: number[] = [];
  const { server, port } = await start((request) => {
    handled.push(new URL(request.url).pathname);
    acceptedBefore.push(connections);
    return new Response("ok");
  });
  server.on("connection", () => connections++);
  const paths = [...Array.from({ length: 40 }, (_, index) => `/${index}`), "/health"];
  await Promise.all(paths.map((path) => exchange(port, `GET ${path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n`)));
  expect(handled[0]).toBe("/health");
  expect(handled).toHaveLength(41);
  expect(Math.min(...acceptedBefore)).toBe(41);
});

test("answers 400 for an invalid chunked body that the route is reading", async () => {
  const { port } = await start(async (request) => new Response(await request.text()));
  const answer = await exchange(port, `${HEAD}Transfer-Encoding: chunked\r\n\r\n`, "zz\r\n");
  expect(errorOf(answer)).toMatchObject({ code: 400, error_code: "E_ARGUMENT", message: expect.stringContaining("chunk") });
});

test("answers 408 to a request that does not arrive in time", async () => {
  const { server, port } = await start();
  // Node looks for slow requests every 30 s; this is the event that it emits then.
  const socket = connect(port, "127.0.0.1");
  const chunks: Buffer[] = [];
  socket.on("data", (chunk: Buffer) => chunks.push(chunk));
  const [accepted] = (await once(server, "connection")) as [Socket];
  socket.write("GET / HT");
  server.emit("clientError", Object.assign(new Error("Request timeout"), { code: "ERR_HTTP_REQUEST_TIMEOUT" }), accepted);
  await once(socket, "close", { signal: AbortSignal.timeout(DEADLINE_MS) });
  expect(errorOf(Buffer.concat(chunks).toString())).toMatchObject({
    code: 408,
    error_code: "E_REQUEST_TIMEOUT",
    type: "RequestTimeoutError",
  });
});

test("does not write an error into a started response", async () => {
  let isCancelled = false;
  const { port } = await start(
    () =>
      new Response(
        new ReadableStream({
          start(controller) {
            controller.enqueue(Buffer.from("first"));
          },
          cancel() {
            isCancelled = true;
          },
        }),
      ),
  );
  const socket = connect(port, "127.0.0.1");
  let received = "";
  socket.on("data", (chunk: Buffer) => {
    received += chunk.toString();
    if (received.includes("first")) socket.write("no request\r\n\r\n");
  });
  socket.write("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
  await once(socket, "close", { signal: AbortSignal.timeout(DEADLINE_MS) });
  await expect.poll(() => isCancelled).toBe(true);
  expect(received).toMatch(/^HTTP\/1\.1 200 /u);
  expect(received).not.toContain("error");
});

test.each([0, 50])("answers an invalid request after a valid one on the same connection that takes %i ms", async (ms) => {
  const { port } = await start(async () => {
    if (ms > 0) await new Promise((resolve) => setTimeout(resolve, ms));
    return new Response("ok");
  });
  const answer = await exchange(port, "GET / HTTP/1.1\r\nHost: x\r\n\r\n", "no request\r\n\r\n");
  const [first, second] = answer.split(/(?<=ok)(?=HTTP)/u);
  expect(first).toContain("200 OK");
  expect(errorOf(second ?? "")).toMatchObject({ code: 400 });
});
