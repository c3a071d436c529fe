/**
 * Discovery and start of the embedded service of a data directory.
 *
 * This is the only module of the client that imports the service's code, and only dynamically: scripts that talk to a remote service load
 * none of it.
 */
import { readFile } from "node:fs/promises";
import { join, resolve } from "node:path";
import { z } from "zod";
import { ConfigError, WhetstoneError } from "../../base/errors.ts";
import { delay } from "../../base/util/delay.ts";
import { logLine } from "../../base/util/output.ts";
import { parseJson } from "../../base/util/values.ts";

/** Embedded service: a service on this machine that stores its data in `dataDir`, started by this process or by another one. */
export interface LocalService {
  readonly url: string;
  readonly apiKey: string;
  readonly dataDir: string;
  /** Whether the call that returned this object started the service. */
  readonly isStarted: boolean;
  /** Stops the service if this process started it; otherwise does nothing. */
  close(): Promise<void>;
}

/** Options of {@link localService}. */
export interface LocalServiceOptions {
  /** Data directory. @default {@link defaultDataDir} */
  readonly dataDir?: string | undefined;
  /** API key. @default the key stored in the data directory */
  readonly apiKey?: string | undefined;
  /** Base models by identifier, for a service that is started; a running service does not get them. @default none */
  readonly baseModels?: Readonly<Record<string, string>> | undefined;
  readonly signal?: AbortSignal | undefined;
}

/** Schema of `service.json`, which a running service writes to its data directory. */
const serviceFile = z.looseObject({ pid: z.int(), url: z.url({ protocol: /^https?$/ }) });

/** Schema of the health report, with the fields used here. */
const serviceReport = z.looseObject({
  status: z.string(),
  devices: z
    .array(z.looseObject({ name: z.string() }))
    .optional()
    .catch(undefined),
});

/** Environment variables that select the device of a service at its start. */
const DEVICE_VARIABLES = ["WHETSTONE_DEVICE", "WHETSTONE_DEVICE_MEMORY", "WHETSTONE_WEIGHT_PRECISION", "WHETSTONE_ROLLOUT_PRECISION"];

/**
 * Max time in milliseconds to wait for a service that another process is starting: from its lock of the data directory to its first
 * response.
 */
const START_PATIENCE_MS = 15_000;
/** Pause between two attempts to reach or start a service, in milliseconds. */
const START_POLL_MS = 200;
/** Timeout of a health check, in milliseconds. */
const HEALTH_TIMEOUT_MS = 2_000;
/** Max size of a health report: the request may reach another program, which answers with any number of bytes. */
const MAX_HEALTH_BYTES = 2 ** 20;

/** Returns `WHETSTONE_HOME`, or `.whetstone` in the working directory. */
export function defaultDataDir(): string {
  return process.env["WHETSTONE_HOME"] || ".whetstone";
}

/**
 * Attaches to the service that runs on `dataDir`, or starts one. Prints one line if the running service uses another device than
 * `WHETSTONE_DEVICE`.
 *
 * @throws ConfigError `E_CONFIG` if a service runs there but its API key cannot be found, or if a variable of the device is not valid.
 */
export async function localService({ dataDir = defaultDataDir(), apiKey, baseModels, signal }: LocalServiceOptions): Promise<LocalService> {
  const directory = resolve(dataDir);
  const giveUpAtMs = performance.now() + START_PATIENCE_MS;
  for (;;) {
    const running = await runningService({ dataDir: directory, apiKey, signal });
    if (running !== null) {
      await checkDevice(running, signal);
      return running;
    }
    signal?.throwIfAborted();
    try {
      return await startService(directory, apiKey, baseModels);
    } catch (error) {
      // Another process holds the directory's lock: it is starting or stopping at this moment, or it is unreachable.
      const isTaken = WhetstoneError.isInstance(error) && error.param === "dataDir" && error.retryable;
      if (!isTaken || performance.now() > giveUpAtMs) throw error;
    }
    await delay(START_POLL_MS, { signal });
  }
}

/** Starts the service of a data directory in this process. */
async function startService(
  dataDir: string,
  apiKey: string | undefined,
  baseModels: Readonly<Record<string, string>> | undefined,
): Promise<LocalService> {
  const service = await import("../../service/index.ts");
  // Base models may lie in any directory: only the user of this process has the key, and can read the same files anyway.
  const started = await service.startService({ dataDir, apiKey, baseModels, allowedBaseRoots: "any" });
  // The script did not start the service explicitly, so that the service must not keep the process alive when the script has finished.
  started.unref();
  return { url: started.url, apiKey: started.apiKey, dataDir: started.dataDir, isStarted: true, close: () => started.close() };
}

/**
 * Returns the service that runs on `dataDir`; null if none does.
 *
 * @throws ConfigError `E_CONFIG` if a service runs there but its API key cannot be found.
 */
export async function runningService({ dataDir = defaultDataDir(), apiKey, signal }: LocalServiceOptions): Promise<LocalService | null> {
  const file = await readFile(join(dataDir, "service.json"), "utf8").catch(() => null);
  if (file === null) return null;
  const parsed = serviceFile.safeParse(parseJson(file));
  if (!parsed.success) return null;
  const url = parsed.data.url.replace(/\/+$/, "");
  if ((await readHealth(url, signal)) === null) return null;
  const key = apiKey ?? (await readFile(join(dataDir, "api-key"), "utf8").catch(() => "")).trim();
  if (key === "") {
    const message = `A service runs at ${url} on the data directory \`${dataDir}\`, but its API key is not kept there. Set WHETSTONE_API_KEY or pass \`apiKey\``;
    throw new ConfigError(message, { param: "apiKey" });
  }
  return { url, apiKey: key, dataDir, isStarted: false, close: () => Promise.resolve() };
}

/** Keys of the printed lines (service, requested device, used devices), so that each is printed once per process. */
const printedKeys = new Set<string>();

/**
 * Checks the variables of the device, which have no effect on a running service, and prints a line if it uses another device.
 *
 * @throws ConfigError `E_CONFIG` if a variable is not valid.
 */
async function checkDevice({ url, dataDir }: LocalService, signal: AbortSignal | undefined): Promise<void> {
  if (DEVICE_VARIABLES.every((name) => (process.env[name]?.trim() ?? "") === "")) return;
  const { chooseDevice } = await import("../../service/models/device.ts");
  const { device } = chooseDevice({});
  // Nothing to compare without a requested device. With "auto", the devices depend on the models in use.
  if ((process.env["WHETSTONE_DEVICE"]?.trim() ?? "") === "" || device === "auto") return;
  const used = (await readHealth(url, signal))?.devices?.map(({ name }) => name) ?? [];
  const key = `${url} ${device} ${used.join()}`;
  if (used.length === 0 || used.includes(device) || printedKeys.has(key)) return;
  printedKeys.add(key);
  logLine(
    `WHETSTONE_DEVICE=${device} has no effect: the service at ${url} already runs on the data directory ${dataDir}, on the device ${used.join(" and ")}. Stop it to use another device`,
  );
}

/**
 * Returns the health report of the service at `url`; null if no service answers. Sent without a key, because the port in a stale file may now
 * belong to another program.
 */
async function readHealth(url: string, signal: AbortSignal | undefined): Promise<z.infer<typeof serviceReport> | null> {
  const { Agent } = await import("undici");
  const agent = new Agent({ connect: { timeout: HEALTH_TIMEOUT_MS }, maxResponseSize: MAX_HEALTH_BYTES });
  try {
    const { statusCode, body } = await agent.request({
      origin: url,
      path: "/health",
      method: "GET",
      headersTimeout: HEALTH_TIMEOUT_MS,
      bodyTimeout: HEALTH_TIMEOUT_MS,
      signal: signal ?? null,
    });
    // A 503 with a health report means that the service runs and its sampler is restarting. A 503 with an error body means that it is
    // shutting down.
    const report = serviceReport.safeParse(await body.json());
    return report.success && (statusCode === 200 || statusCode === 503) ? report.data : null;
  } catch {
    signal?.throwIfAborted();
    return null;
  } finally {
    await agent.destroy();
  }
}
