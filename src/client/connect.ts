import { ConfigError } from "../errors.ts";
import { checkCount, readBaseUrl } from "./address.ts";
import { localService } from "./embedded.ts";
import type { ClientPorts } from "./ports.ts";
import { Service } from "./service.ts";
import type { Transport, TransportOptions } from "./transport.ts";

/** Options of `connect`. Everything has a default. */
export interface ConnectOptions {
  /** Address of the service, with or without `/v1`. @default WHETSTONE_BASE_URL; without it, the embedded service of `dataDir` */
  readonly baseUrl?: string | undefined;
  /** API key, sent as bearer token. @default WHETSTONE_API_KEY; for the embedded service, the key stored in its data directory */
  readonly apiKey?: string | undefined;
  /** Data directory of the embedded service. @default WHETSTONE_HOME, else `.whetstone` in the working directory */
  readonly dataDir?: string | undefined;
  /** Address, with `/v1`, of the list of served models if it differs from the service's own. @default `{baseUrl}/v1` */
  readonly inferenceUrl?: string | undefined;
  /** Prefix of `entity/project/name` in a request's `model`, for services that address models by URI, e.g. `scheme:///`. @default "" */
  readonly modelPrefix?: string | undefined;
  /** Max number of sockets to the service; further requests wait. @default 256 */
  readonly connections?: number | undefined;
  /** Max number of retries of a request that is safe to repeat. @default 4 */
  readonly maxRetries?: number | undefined;
  /** Aborts the search for, or the start of, the embedded service. */
  readonly signal?: AbortSignal | undefined;
}

/**
 * Connects to a service with injected job following and batch examination. `connect` of the package root is this function with the RxJS
 * follower and preflight.
 *
 * @param ports - Implementations of job following and batch examination.
 * @param options - See {@link ConnectOptions}.
 * @throws ConfigError `E_CONFIG` if the address is not a valid URL, if an address is given without an API key or together with `dataDir`,
 *   or if a count is out of range.
 */
export async function connectWith(ports: ClientPorts, options: ConnectOptions = {}): Promise<Service> {
  options.signal?.throwIfAborted();
  const { modelPrefix = "", connections, maxRetries } = options;
  checkCount("connections", connections, 1);
  checkCount("maxRetries", maxRetries, 0);
  const configured = options.baseUrl ?? fromEnvironment("WHETSTONE_BASE_URL");
  const givenKey = options.apiKey ?? fromEnvironment("WHETSTONE_API_KEY");
  const common = { modelPrefix, ports };
  if (configured !== undefined) {
    if (options.dataDir !== undefined) {
      throw new ConfigError(
        `Both an address (${options.baseUrl === undefined ? "WHETSTONE_BASE_URL" : "`baseUrl`"}) and \`dataDir\` are given; a data directory belongs to the embedded service. Leave one out`,
        { param: "dataDir" },
      );
    }
    if (givenKey === undefined) {
      throw new ConfigError("Expected an API key for the service: set WHETSTONE_API_KEY or pass `apiKey`", { param: "apiKey" });
    }
    const baseUrl = readBaseUrl(configured, "baseUrl").replace(/\/v1$/, "");
    const inferenceUrl = options.inferenceUrl === undefined ? `${baseUrl}/v1` : readBaseUrl(options.inferenceUrl, "inferenceUrl");
    const transport = await openTransport({ apiKey: givenKey, connections, maxRetries });
    return new Service({ ...common, baseUrl, inferenceUrl, apiKey: givenKey, transport, onClose: () => Promise.resolve() });
  }
  const local = await localService({ dataDir: options.dataDir, apiKey: givenKey, signal: options.signal });
  const baseUrl = readBaseUrl(local.url, "url").replace(/\/v1$/, "");
  const { apiKey } = local;
  const transport = await openTransport({ apiKey, connections, maxRetries });
  return new Service({ ...common, baseUrl, inferenceUrl: `${baseUrl}/v1`, apiKey, transport, onClose: () => local.close() });
}

/** Opens the transport. undici is imported only when a connection is made, because it takes a large share of the package's load time. */
async function openTransport(options: TransportOptions): Promise<Transport> {
  const { Transport } = await import("./transport.ts");
  return new Transport(options);
}

function fromEnvironment(name: string): string | undefined {
  const value = process.env[name]?.trim();
  return value === undefined || value === "" ? undefined : value;
}
