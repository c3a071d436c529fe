/** Pool of upstream servers that sample the same models. */
import { createHash } from "node:crypto";
import { ConfigError } from "../../base/errors.ts";
import { UpstreamAdapters } from "./adapters.ts";
import { connectUpstream, type Upstream, type UpstreamOptions } from "./upstream.ts";

/** Milliseconds for which a server that could not answer gets no further requests, unless all servers could not. */
const DOWN_MS = 5000;
/** Max running requests of a server that a session stays on, as a multiple of the mean. */
const MAX_LOAD = 1.25;

/** Server of a pool. */
export class PooledServer {
  readonly upstream: Upstream;
  readonly adapters: UpstreamAdapters;
  /** Number of requests in progress. */
  running = 0;
  /** Whether the server gets no further requests, until it is resumed. */
  isDrained = false;
  #downUntilMs = 0;

  /** @param onFailure - Called with the error if an adapter could not be unloaded. */
  constructor(upstream: Upstream, onFailure: (error: unknown) => void) {
    this.upstream = upstream;
    this.adapters = new UpstreamAdapters(upstream, onFailure);
  }

  /** Address of the server, as configured. */
  get url(): string {
    return this.upstream.url;
  }

  /** Whether the server could not answer a short time ago. */
  get isDown(): boolean {
    return performance.now() < this.#downUntilMs;
  }

  /** Marks the server as down for a short time. */
  markDown(): void {
    this.#downUntilMs = performance.now() + DOWN_MS;
  }
}

/** Servers that sample the same models, and the choice of one for each request. */
export class UpstreamPool {
  readonly servers: readonly PooledServer[];
  readonly options: UpstreamOptions;
  /** Base models that every server samples: local identifier → name on the servers. */
  readonly baseModels: ReadonlyMap<string, string>;

  /** @param onFailure - Called with the error if an adapter could not be unloaded. */
  constructor(upstreams: readonly Upstream[], onFailure: (error: unknown) => void) {
    this.servers = upstreams.map((upstream) => new PooledServer(upstream, onFailure));
    const [first, ...others] = upstreams;
    if (first === undefined) throw new ConfigError("Expected at least one upstream, got none", { param: "upstream.url" });
    this.options = first.options;
    this.baseModels = new Map([...first.baseModels].filter(([id]) => others.every(({ baseModels }) => baseModels.has(id))));
    if (this.baseModels.size === 0)
      throw new ConfigError("Expected the upstream servers to sample the same base models, got servers without a common one", {
        param: "upstream.url",
      });
  }

  /** Returns the context length in tokens of a base model by its local identifier, the shortest of all servers; null if it is unknown. */
  contextLengthOf(base: string): number | null {
    const lengths = this.servers.flatMap(({ upstream }) => upstream.contextLengthOf(base) ?? []);
    return lengths.length === 0 ? null : Math.min(...lengths);
  }

  /**
   * Returns the server for a request; undefined if all others are drained or excluded. A session stays on one server, whose prefix cache has
   * its earlier turns, as long as the server has no more than {@link MAX_LOAD} times the mean number of requests. Requests without a session
   * go to the server with the fewest.
   *
   * @param session - Name of the session; null for none.
   * @param except - Servers that could not answer the request.
   * @source Thaler and Ravishankar, "Using name-based mappings to increase hit rates", 1998; Mirrokni, Thorup and Zadimoghaddam, "Consistent
   *   hashing with bounded loads", 2018.
   */
  choose(session: string | null, except: ReadonlySet<PooledServer> = new Set()): PooledServer | undefined {
    const accepting = this.servers.filter((server) => !server.isDrained && !except.has(server));
    const up = accepting.filter(({ isDown }) => !isDown);
    // If all servers could not answer, one of them may be back.
    const candidates = up.length > 0 ? up : accepting;
    const [leastLoaded] = candidates.toSorted((a, b) => a.running - b.running);
    if (session === null) return leastLoaded;
    const total = candidates.reduce((sum, { running }) => sum + running, 0);
    // The request itself counts too.
    const capacity = Math.ceil((MAX_LOAD * (total + 1)) / candidates.length);
    const byRank = candidates
      .map((server) => ({ server, rank: rankOf(session, server.url) }))
      .toSorted((a, b) => (a.rank < b.rank ? -1 : 1))
      .map(({ server }) => server);
    return byRank.find(({ running }) => running < capacity) ?? leastLoaded;
  }

  /** Closes the connections; requests in progress fail. */
  async close(): Promise<void> {
    await Promise.all(this.servers.map(({ upstream }) => upstream.close()));
  }
}

/** Returns the rank of a server for a session (rendezvous hashing), the same in every process. A session prefers the lowest rank. */
function rankOf(session: string, url: string): string {
  return createHash("sha256").update(`${url} ${session}`).digest("hex");
}

/**
 * Connects to all servers of the options.
 *
 * @param onFailure - Called with the error if an adapter could not be unloaded.
 * @throws ConfigError `E_CONFIG` as {@link connectUpstream}, and for servers without a common base model.
 */
export async function connectPool(options: UpstreamOptions, onFailure: (error: unknown) => void): Promise<UpstreamPool> {
  const urls = [options.url].flat();
  if (new Set(urls).size < urls.length)
    throw new ConfigError(`Expected different addresses of upstream servers, got one twice: ${urls.join(", ")}`, { param: "upstream.url" });
  const connections = await Promise.allSettled(urls.map((url) => connectUpstream(url, options)));
  const connected = connections.flatMap((connection) => (connection.status === "fulfilled" ? [connection.value] : []));
  try {
    const failed = connections.find((connection) => connection.status === "rejected");
    if (failed !== undefined) throw failed.reason;
    return new UpstreamPool(connected, onFailure);
  } catch (error) {
    await Promise.all(connected.map((upstream) => upstream.close()));
    throw error;
  }
}
