/** Proxy in front of a server that can cut connections, and drop or delay their data. */
import { once } from "node:events";
import { connect, createServer, type AddressInfo, type Socket } from "node:net";
import { onTestFinished } from "vitest";

/** Decision about data from a client: forward it, drop it, or cut the connection before or after forwarding it. */
type Verdict = "forward" | "drop" | "cut" | "forward and cut";

export interface TcpProxy {
  readonly port: number;
  /** Decides about each piece of data from a client. @default forwards everything */
  judge: (data: Buffer) => Verdict;
  /** Milliseconds by which data in both directions is delayed. @default 0 */
  delayMs: number;
  /** Whether answers of the server are dropped. @default false */
  isMute: boolean;
  /** Cuts all connections. */
  cut(): void;
  /** Stops listening; connections fail until {@link TcpProxy.open}. */
  close(): Promise<void>;
  open(): Promise<void>;
}

/** Starts a proxy that ends with the test. */
async function startProxy(target: { readonly host: string; readonly port: number }): Promise<TcpProxy> {
  const sockets = new Set<Socket>();
  const server = createServer((client) => {
    const upstream = connect(target);
    for (const socket of [client, upstream]) {
      sockets.add(socket);
      socket
        .on("error", () => undefined)
        .on("close", () => {
          sockets.delete(socket);
          client.destroy();
          upstream.destroy();
        });
    }
    const later = (action: () => void) => (proxy.delayMs > 0 ? setTimeout(action, proxy.delayMs) : action());
    client.on("data", (data) => {
      const verdict = proxy.judge(data);
      if (verdict === "drop") return;
      if (verdict === "cut") client.destroy();
      else if (verdict === "forward") later(() => upstream.write(data));
      // The server still receives the data, and its answer is lost.
      else upstream.write(data, () => setTimeout(() => client.destroy(), 200));
    });
    upstream.on("data", (data) => {
      if (!proxy.isMute) later(() => client.write(data));
    });
  });
  const open = async (port: number) => {
    server.listen(port, "127.0.0.1");
    await once(server, "listening");
  };
  await open(0);
  const { port } = server.address() as AddressInfo;
  const cut = () => {
    for (const socket of sockets) socket.destroy();
  };
  const proxy: TcpProxy = {
    port,
    judge: () => "forward",
    delayMs: 0,
    isMute: false,
    cut,
    async close() {
      cut();
      server.close();
      await once(server, "close");
    },
    open: () => open(port),
  };
  onTestFinished(() => {
    cut();
    server.close();
  });
  return proxy;
}

/** Starts a proxy in front of a Postgres server. Returns it with the address through it, to which `parameters` are added. */
export async function startPostgresProxy(
  url: string,
  parameters: Readonly<Record<string, string>> = {},
): Promise<{ readonly proxy: TcpProxy; readonly database: string }> {
  const address = new URL(url);
  const proxy = await startProxy({ host: address.hostname, port: Number(address.port || 5432) });
  address.hostname = "127.0.0.1";
  address.port = String(proxy.port);
  for (const [name, value] of Object.entries(parameters)) address.searchParams.set(name, value);
  return { proxy, database: address.href };
}
