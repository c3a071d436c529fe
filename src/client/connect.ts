import { ConfigError } from "../errors.ts";
import { localService } from "./embedded.ts";
import type { ClientPorts } from "./ports.ts";
import { Service } from "./service.ts";
import type { Transport, TransportOptions } from "./transport.ts";

/** Options of `connect`. Everything has a default. */
export interface ConnectOptions {
  /** Address of the service, with or without `/v1`. @default WHETSTONE_BASE_URL; without it, the embedded service of `dataDir` */
  readonly baseUrl?: string | undefined;
  /** @default WHETSTONE_API_KEY; for the embedded service, the key kept in its data directory */
  readonly apiKey?: string | undefined;
  /** Where the embedded service keeps everything. @default WHETSTONE_HOME, else `.whetstone` in the working directory */
  readonly dataDir?: string | undefined;
  /** Address of the list of served models, with `/v1`, where it is not the service's own. @default `{baseUrl}/v1` */
  readonly inferenceUrl?: string | undefined;
  /** What goes before `entity/project/name` in a request's `model`, for services that address models by URI, e.g. `scheme:///`. @default "" */
  readonly modelPrefix?: string | undefined;
  /** Sockets to the service; more requests wait. @default 256 */
  readonly connections?: number | undefined;
  /** Attempts after the first, where repeating is safe. @default 4 */
  readonly maxRetries?: number | undefined;
  /** Ends the search for or start of the embedded service. */
  readonly signal?: AbortSignal | undefined;
}

/**
 * Connects, with what this room does not have itself. `connect` of the package root is this with the RxJS follower and preflight.
 *
 * @throws ConfigError `E_CONFIG` for an address that is none, or an address without a key.
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

/** Not before there is something to connect to: loading undici takes a third as long as all else that importing the package loads. */
async function openTransport(options: TransportOptions): Promise<Transport> {
  const { Transport } = await import("./transport.ts");
  return new Transport(options);
}

function readBaseUrl(text: string, param: string): string {
  const url = URL.canParse(text) ? new URL(text) : null;
  if (url === null || (url.protocol !== "http:" && url.protocol !== "https:")) {
    throw new ConfigError(`Expected \`${param}\` to be an http or https address, got \`${text.replace(/\/\/.*@/, "//…@")}\``, { param });
  }
  // A key in the address would end up in every error message.
  if (url.username !== "" || url.password !== "")
    throw new ConfigError(`Expected \`${param}\` without user name and password; pass the key as \`apiKey\``, { param });
  if (url.search !== "" || url.hash !== "")
    throw new ConfigError(`Expected \`${param}\` without query and fragment, got \`${url.origin}${url.pathname}?…\``, { param });
  return (url.origin + url.pathname).replace(/\/+$/, "");
}

function checkCount(param: string, value: number | undefined, min: number): void {
  if (value === undefined || (Number.isInteger(value) && value >= min)) return;
  throw new ConfigError(`Expected \`${param}\` to be an integer of at least ${min}, got \`${value}\``, { param });
}

function fromEnvironment(name: string): string | undefined {
  const value = process.env[name]?.trim();
  return value === undefined || value === "" ? undefined : value;
}
