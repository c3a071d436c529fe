/** Connection to a service: validates the options, finds or starts the service, and opens the transport. */
import { ConfigError } from "../../base/errors.ts";
import { checkCount, isOnThisMachine, readBaseUrl } from "./address.ts";
import { localSources } from "./base-models.ts";
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
  /**
   * Base models by identifier: the path of a directory in Hugging Face layout or of a `.gguf` file, relative to the working directory;
   * `hf:<owner>/<name>[@revision]`; or `ollama:<name>[:tag]`. The embedded service starts with them; to a service that runs already they are
   * added until it stops. @default none
   */
  readonly baseModels?: Readonly<Record<string, string>> | undefined;
  /** Address, with `/v1`, of the list of served models if it differs from the service's own. @default `{baseUrl}/v1` */
  readonly inferenceUrl?: string | undefined;
  /** Prefix of `entity/project/name` in a request's `model`, for services that address models by URI, e.g. `scheme:///`. @default "" */
  readonly modelPrefix?: string | undefined;
  /** Max number of sockets to the service; further requests wait. @default 256 */
  readonly connections?: number | undefined;
  /** Max number of retries of a request that is safe to repeat. @default 4 */
  readonly maxRetries?: number | undefined;
  /** Aborts the connection while the embedded service is looked up or started, or base models are added. */
  readonly signal?: AbortSignal | undefined;
}

/**
 * Connects to a service: to the one at `baseUrl`, else to the embedded service of `dataDir`, which it starts if it does not run. `connect`
 * of the package root is this function with RxJS and preflight as `ports`.
 *
 * @param ports - Implementations of job following and batch examination.
 * @param options - See {@link ConnectOptions}.
 * @throws ConfigError `E_CONFIG` if the address is not a valid URL, if an address is given without an API key or together with `dataDir`,
 *   or if a count is out of range.
 * @throws ArgumentError `E_ARGUMENT` for a malformed base model; BaseModelError `E_BASE_MODEL` if a started service cannot load one,
 *   HttpError `E_HTTP` if a running service rejects one.
 */
export async function connectWith(ports: ClientPorts, options: ConnectOptions = {}): Promise<Service> {
  options.signal?.throwIfAborted();
  checkCount("connections", options.connections, 1);
  checkCount("maxRetries", options.maxRetries, 0);
  const address = options.baseUrl ?? fromEnvironment("WHETSTONE_BASE_URL");
  const apiKey = options.apiKey ?? fromEnvironment("WHETSTONE_API_KEY");
  return address === undefined ? connectEmbedded(ports, apiKey, options) : connectTo(address, ports, apiKey, options);
}

/** Connects to the service at `address`, and adds the base models of the options to it. */
async function connectTo(address: string, ports: ClientPorts, apiKey: string | undefined, options: ConnectOptions): Promise<Service> {
  const { modelPrefix = "", connections, maxRetries, baseModels = {} } = options;
  if (options.dataDir !== undefined) {
    const source = options.baseUrl === undefined ? "WHETSTONE_BASE_URL" : "`baseUrl`";
    throw new ConfigError(
      `Both an address (${source}) and \`dataDir\` are given; a data directory belongs to the embedded service. Leave one out`,
      { param: "dataDir" },
    );
  }
  if (apiKey === undefined) {
    throw new ConfigError("Expected an API key for the service: set WHETSTONE_API_KEY or pass `apiKey`", { param: "apiKey" });
  }
  const baseUrl = readBaseUrl(address, "baseUrl").replace(/\/v1$/, "");
  const inferenceUrl = options.inferenceUrl === undefined ? `${baseUrl}/v1` : readBaseUrl(options.inferenceUrl, "inferenceUrl");
  const transport = await openTransport({ apiKey, connections, maxRetries });
  const service = new Service({ modelPrefix, ports, baseUrl, inferenceUrl, apiKey, transport, onClose: () => Promise.resolve() });
  return withBaseModels(service, isOnThisMachine(baseUrl) ? localSources(baseModels) : baseModels, options.signal);
}

/** Connects to the embedded service. A service that is started gets the base models at its start; a running one, with requests. */
async function connectEmbedded(ports: ClientPorts, givenKey: string | undefined, options: ConnectOptions): Promise<Service> {
  const { modelPrefix = "", connections, maxRetries, dataDir, signal } = options;
  const baseModels = localSources(options.baseModels ?? {});
  const embedded = await localService({ dataDir, apiKey: givenKey, baseModels, signal });
  const { apiKey } = embedded;
  const baseUrl = readBaseUrl(embedded.url, "url").replace(/\/v1$/, "");
  const inferenceUrl = `${baseUrl}/v1`;
  const transport = await openTransport({ apiKey, connections, maxRetries });
  const service = new Service({ modelPrefix, ports, baseUrl, inferenceUrl, apiKey, transport, onClose: () => embedded.close() });
  return embedded.isStarted ? service : withBaseModels(service, baseModels, signal);
}

/** Adds base models to a running service. Closes the connection if one of them is rejected. */
async function withBaseModels(
  service: Service,
  baseModels: Readonly<Record<string, string>>,
  signal: AbortSignal | undefined,
): Promise<Service> {
  try {
    for (const [id, source] of Object.entries(baseModels)) await service.addBaseModel(source, { id, signal });
    return service;
  } catch (error) {
    await service.close();
    throw error;
  }
}

/** Opens the transport. undici is imported only when a connection is made, because it takes a large share of the package's load time. */
async function openTransport(options: TransportOptions): Promise<Transport> {
  const { Transport } = await import("./transport.ts");
  return new Transport(options);
}

/** Returns an environment variable; undefined if it is unset or blank. */
function fromEnvironment(name: string): string | undefined {
  const value = process.env[name]?.trim();
  return value === undefined || value === "" ? undefined : value;
}
