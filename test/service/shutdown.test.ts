/** The end of a service, and of connections that stop sending, over real sockets. */
import { once } from "node:events";
import { connect, type Socket } from "node:net";
import { expect, onTestFinished, test } from "vitest";
import { connect as connectTo } from "../../src/index.ts";
import { deferred } from "../../src/base/util/deferred.ts";
import { startTestService, type TestService } from "./support.ts";

const CHAT = "/v1/chat/completions";
const HELLO = { model: "tiny", messages: [{ role: "user", content: "hello" }], max_tokens: 4, stream: true };

/** A service that samples its first token and then waits for `gate`. */
async function held(options: Parameters<typeof startTestService>[0] = {}) {
  const [gate, reached] = [deferred<void>(), deferred<void>()];
  const service = await startTestService({
    ...options,
    engine: {
      before: async ({ verb, detail }, { signal }) => {
        if (verb !== "sampleToken" || detail !== 1) return;
        reached.resolve();
        await Promise.race([gate.promise, signal === undefined ? gate.promise : once(signal, "abort").then(() => signal.throwIfAborted())]);
      },
    },
  });
  return { service, gate, reached: reached.promise };
}

function events(text: string): string[] {
  return text
    .split("\n\n")
    .slice(0, -1)
    .map((event) => event.slice("data: ".length));
}

/** A connection that has sent `head` of a request; all it receives, once it is closed. */
async function raw({ service }: TestService, head: string): Promise<{ readonly socket: Socket; readonly received: Promise<string> }> {
  const { hostname, port } = new URL(service.url);
  const socket = connect(Number(port), hostname);
  await once(socket, "connect");
  let text = "";
  socket.on("data", (chunk) => (text += chunk.toString()));
  socket.on("error", () => undefined);
  socket.write(head);
  return { socket, received: once(socket, "close").then(() => text) };
}

function upload({ service }: TestService, length: number): string {
  const lines = [
    "POST /v1/preview/artifacts HTTP/1.1",
    "Host: x",
    `Authorization: Bearer ${service.apiKey}`,
    "Content-Type: application/json",
  ];
  return [...lines, `Content-Length: ${length}`, "", ""].join("\r\n");
}

test("completes a running stream while new requests get 503 and a closed connection", async () => {
  const { service, gate, reached } = await held();
  const streamed = service.call("POST", CHAT, HELLO);
  await reached;
  const closed = service.service.close();
  const refused = await service.call("POST", CHAT, HELLO);
  expect([refused.status, refused.headers.get("connection"), refused.headers.get("retry-after")]).toEqual([503, "close", "1"]);
  expect(refused.body.error).toMatchObject({ type: "ServiceUnavailableError", code: 503, error_code: "E_OVERLOADED" });
  expect((await service.call("GET", "/health", undefined, { key: null })).status).toBe(503);
  gate.resolve();
  const lines = events((await streamed).body);
  expect(lines.at(-1)).toBe("[DONE]");
  expect(JSON.parse(lines.at(-2)!).choices[0].finish_reason).toBe("stop");
  await closed;
  await expect(service.call("GET", "/health")).rejects.toThrow();
});

test("`connect` waits for a service that is closing, and starts a new one", async () => {
  const { service, gate, reached } = await held();
  const { dataDir } = service.service;
  const streamed = service.call("POST", CHAT, HELLO);
  await reached;
  const closed = service.service.close();
  const connecting = connectTo({ dataDir });
  gate.resolve();
  await Promise.all([streamed, closed]);
  const own = await connecting;
  onTestFinished(() => own.close());
  expect(own.baseUrl).not.toBe(service.service.url);
});

test("ends a stream with an error event after the grace period", async () => {
  const { service, reached } = await held();
  const streamed = service.call("POST", CHAT, HELLO);
  await reached;
  await Promise.all([
    service.service.close({ graceMs: 100 }),
    expect(streamed.then(({ body }) => events(body).slice(-2))).resolves.toEqual([expect.stringContaining("shutting down"), "[DONE]"]),
  ]);
});

test("closes during an unfinished body after the grace period", async () => {
  const service = await startTestService();
  const { received } = await raw(service, `${upload(service, 100)}{"project"`);
  await service.service.close({ graceMs: 50 });
  await received;
});

test("answers 408 for a body that stops arriving, and reads a slow one", async () => {
  const service = await startTestService({ limits: { bodyTimeoutMs: 1000 } });
  const silent = await raw(service, `${upload(service, 100)}{"project"`);
  const text = JSON.stringify({ project: "demo", name: "slow" });
  const slow = await raw(service, upload(service, text.length));
  // Longer than the timeout in all, with pauses that are much shorter.
  for (let at = 0; at < text.length; at += 3) {
    slow.socket.write(text.slice(at, at + 3));
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  const answer = await silent.received;
  expect(answer).toMatch(/^HTTP\/1\.1 408 /);
  expect(JSON.parse(answer.split("\r\n\r\n")[1]!).error).toMatchObject({ code: 408, error_code: "E_REQUEST_TIMEOUT" });
  slow.socket.end();
  expect(await slow.received).toMatch(/^HTTP\/1\.1 200 .*"state":"open"/s);
});
