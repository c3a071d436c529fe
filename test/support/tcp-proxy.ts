/** A TCP proxy that cuts, stalls or refuses connections, for tests of clients. */
import { connect, createServer, type AddressInfo, type Socket } from "node:net";
import { once } from "node:events";
import { onTestFinished } from "vitest";

/** Faults of a proxy. They apply to new connections, and to the bytes that pass from then on. */
export interface Faults {
  /** Whether connections are closed at once. @default false */
  isDown: boolean;
  /** Whether no byte of an answer passes. @default false */
  isSilent: boolean;
  /** Milliseconds that each piece of an answer is delayed. @default 0 */
  delayMs: number;
  /** Bytes sent by the client after which its connection is cut, once per connection as long as `cuts` remain. @default Infinity */
  cutAfterSent: number;
  /** Bytes of answers after which a connection is cut, once per connection as long as `cuts` remain. @default Infinity */
  cutAfterReceived: number;
  /** Number of connections that are cut. @default Infinity */
  cuts: number;
}

export interface TcpProxy {
  /** Address of the proxy, such as `http://127.0.0.1:9000`. */
  readonly endpoint: string;
  readonly faults: Faults;
  /** Number of connections that were cut. */
  readonly cutCount: () => number;
  /** Cuts all open connections. */
  readonly cutAll: () => void;
}

/** Starts a proxy in front of `endpoint` that ends with the test. */
export async function startProxy(endpoint: string): Promise<TcpProxy> {
  const { hostname, port } = new URL(endpoint);
  const faults: Faults = {
    isDown: false,
    isSilent: false,
    delayMs: 0,
    cutAfterSent: Infinity,
    cutAfterReceived: Infinity,
    cuts: Infinity,
  };
  const sockets = new Set<Socket>();
  let cutCount = 0;
  const server = createServer((client) => {
    if (faults.isDown) return client.destroy();
    const upstream = connect({ host: hostname, port: Number(port) });
    let [sent, received] = [0, 0];
    const end = () => {
      client.destroy();
      upstream.destroy();
    };
    const cut = () => {
      cutCount++;
      faults.cuts--;
      // A reset, as of a crashed server.
      client.resetAndDestroy();
      upstream.destroy();
    };
    for (const socket of [client, upstream]) {
      sockets.add(socket);
      socket.on("error", end).on("close", () => {
        sockets.delete(socket);
        end();
      });
    }
    client.on("data", (piece) => {
      sent += piece.byteLength;
      if (sent > faults.cutAfterSent && faults.cuts > 0) cut();
      else upstream.write(piece);
    });
    upstream.on("data", (piece) => {
      received += piece.byteLength;
      if (faults.isSilent) return;
      if (received > faults.cutAfterReceived && faults.cuts > 0) {
        // The first bytes arrive, so that a client has a part of the answer.
        client.write(piece.subarray(0, Math.max(0, piece.byteLength - (received - faults.cutAfterReceived))), cut);
      } else if (faults.delayMs > 0) setTimeout(() => client.writable && client.write(piece), faults.delayMs);
      else client.write(piece);
    });
    return undefined;
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const cutAll = () => {
    for (const socket of sockets) socket.destroy();
  };
  onTestFinished(() => {
    cutAll();
    server.close();
  });
  return { endpoint: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, faults, cutCount: () => cutCount, cutAll };
}
