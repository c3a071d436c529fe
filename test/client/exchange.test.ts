import { once } from "node:events";
import { createServer, type RequestListener, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { Readable } from "node:stream";
import { setTimeout as delay } from "node:timers/promises";
import { afterEach, describe, expect, it } from "vitest";
import { ConnectionError } from "../../src/library/client/index.ts";
import { Transport } from "../../src/library/client/transport.ts";
import { rejection } from "./connection.ts";

const servers: Server[] = [];
afterEach(() => servers.splice(0).forEach((server) => (server.close(), server.closeAllConnections())));

/** Starts a server that answers with `listener`, and a transport with one connection. */
async function open(listener: RequestListener): Promise<{ readonly url: string; readonly transport: Transport }> {
  const server = createServer(listener).listen(0, "127.0.0.1");
  servers.push(server);
  await once(server, "listening");
  const transport = new Transport({ apiKey: null, connections: 1, maxRetries: 0 });
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/`, transport };
}

describe("a buffered response", () => {
  it("is joined from chunks that split characters, without the byte order mark", async () => {
    const bytes = Buffer.from('\uFEFF{"word":"Grüße 🙂"}');
    const { url, transport } = await open((_, response) => void Readable.from(oneByOne(bytes)).pipe(response));
    await expect(transport.json("GET", url)).resolves.toEqual({ word: "Grüße 🙂" });
    await expect(transport.bytes("GET", url)).resolves.toEqual(new Uint8Array(bytes));
  });

  it("uses an array buffer of exactly its size", async () => {
    const { url, transport } = await open((_, response) => response.end("abc"));
    const bytes = await transport.bytes("GET", url);
    expect(bytes.buffer.byteLength).toBe(3);
  });

  it("is the final response after 1xx responses", async () => {
    const { url, transport } = await open((_, response) => {
      response.writeProcessing();
      response.end("{}");
    });
    await expect(transport.json("GET", url)).resolves.toEqual({});
  });

  it("that is cut off rejects with a ConnectionError", async () => {
    const { url, transport } = await open((_, response) => {
      response.writeHead(200, { "content-length": 100 }).write('{"half":', () => response.destroy());
    });
    expect(await rejection(transport.json("GET", url))).toBeInstanceOf(ConnectionError);
  });
});

describe("an abort", () => {
  it("rejects a request at once that waits for a connection, and never sends it", async () => {
    const seen: string[] = [];
    const { url, transport } = await open((request, response) => {
      seen.push(request.url!);
      setTimeout(() => response.end("{}"), 50);
    });
    const first = transport.json("GET", `${url}first`);
    const stop = new AbortController();
    const second = rejection(transport.json("GET", `${url}second`, { signal: stop.signal }));
    const reason = new Error("enough");
    stop.abort(reason);
    expect(await Promise.race([second, first])).toBe(reason);
    await first;
    await transport.json("GET", `${url}third`);
    expect(seen).toEqual(["/first", "/third"]);
  });

  it("rejects with the signal's reason while the body arrives, and closes the upload", async () => {
    const { url, transport } = await open((_, response) => void response.writeHead(200).write("{"));
    const stop = new AbortController();
    const file = Readable.from(endless());
    const call = rejection(transport.json("PUT", url, { body: () => file, signal: stop.signal }));
    await once(file, "data");
    const reason = new Error("enough");
    stop.abort(reason);
    expect(await call).toBe(reason);
    expect(file.destroyed).toBe(true);
  });

  it("before the call sends nothing", async () => {
    let requests = 0;
    const { url, transport } = await open((_, response) => void (requests++, response.end("{}")));
    const reason = new Error("enough");
    expect(await rejection(transport.json("GET", url, { signal: AbortSignal.abort(reason) }))).toBe(reason);
    expect(requests).toBe(0);
  });
});

async function* oneByOne(bytes: Buffer): AsyncGenerator<Buffer> {
  for (const byte of bytes) {
    yield Buffer.of(byte);
    await delay(1);
  }
}

async function* endless(): AsyncGenerator<Buffer> {
  for (;;) {
    yield Buffer.alloc(1024);
    await delay(1);
  }
}
