/**
 * Start and shutdown of a service. `startService` runs the phases `openData`, `startParts` and `createHttp`, which are below it in this
 * order. Each step adds a function that reverts it, for a failed start and for the shutdown.
 */
import { createDashboard } from "../lab/dashboard/index.ts";
import { connectPool } from "../engine/upstream/pool.ts";
import { ConfigError } from "../base/errors.ts";
import { createApp } from "./app.ts";
import { BlobStore } from "./artifacts/blob-store.ts";
import { createContext } from "./create-context.ts";
import {
  type DataDirectory,
  defaultDataDirectory,
  isLoopback,
  openDataDirectory,
  removeServiceFile,
  resolveApiKey,
  writeServiceFile,
} from "./disk/data-directory.ts";
import { checkEngine, type StartEngine } from "./models/default-engine.ts";
import { Reserve } from "./disk/reserve.ts";
import { lockDataDirectory } from "./store/directory-lock.ts";
import { onFullDisk } from "./store/full-start.ts";
import { databaseUrl, openDatabase } from "./store/open-database.ts";
import { DiskSpace } from "./disk/space.ts";
import { startAgeCleanup } from "./history/ages.ts";
import { createHub, hubToken } from "./hub/hub.ts";
import { toErrorResponse } from "./http/errors.ts";
import { requestIdOf } from "./http/request-id.ts";
import { createHttpServer, shuttingDown } from "./http/server.ts";
import { readCertificate, renewCertificate } from "./http/tls.ts";
import type { IncomingMessage } from "node:http";
import type { Server as TlsServer } from "node:https";
import { recover } from "./jobs/recovery.ts";
import { DEFAULT_LIMITS, type ServiceLimits } from "./common/limits.ts";
import { logFailure, redacting, type ServiceLogger, stderrLogger } from "./common/logger.ts";
import { createRedactor, redactEncoded } from "../base/util/redact.ts";
import { TimeSlices } from "../base/util/time-slices.ts";
import { createObservation } from "./observe.ts";
import type { ServiceOptions } from "./options.ts";
import { closeServer, limitSilence, startListening, trackRequests, trackSockets, type UnansweredRequests } from "./http/listening.ts";
import { startFileExpiry } from "./fine-tuning/file-expiry.ts";
import { startSessionExpiry } from "./sessions/expiry.ts";
import { withoutSecrets } from "./keys/secrets.ts";
import { withoutSessionKeys } from "./sessions/keys.ts";
import { sessionPaths } from "./sessions/path-form.ts";
import type { ServiceContext } from "./routes/context.ts";
import { keepScrubbing } from "./stored-files/scrub.ts";
import { openStorage, storageUrl } from "./stored-files/open-storage.ts";
import { keepSweeping } from "./stored-files/sweep.ts";
import { removeManifest } from "./stored-files/manifest.ts";
import { type Undo, undoAll } from "./common/undo.ts";
import { toStartError } from "./start-failure.ts";

/**
 * A service that listens for requests, started by {@link startService}.
 *
 * @example
 * ```ts
 * import { startService } from "whetstone/service";
 *
 * const service = await startService({ port: 8080 });
 * console.log(service.url);
 * service.unref();
 * await service.close({ graceMs: 1000 });
 * ```
 */
export interface RunningService {
  /** URL of the form `http://host:port`, with `tls` `https://host:port`, without a trailing slash. */
  readonly url: string;
  /** Equal to {@link url}, with the name that the connection of `connect` has. */
  readonly baseUrl: string;
  /** Base URL with `/v1`, for any OpenAI-compatible client. */
  readonly inferenceUrl: string;
  /** Key that clients must send. */
  readonly apiKey: string;
  /** Absolute path of the data directory. */
  readonly dataDir: string;
  /** Allows the process to exit while the service runs. */
  unref(): void;
  /** Reads certificate and key again, as the service does when their files change. Has no effect without the option `tls`. */
  reloadCertificate(): Promise<void>;
  /**
   * Shuts the service down: answers new requests with 503, waits for running requests, then cuts them off; a stream ends with an error
   * event. A running job stops immediately and resumes at the next start. Further calls return the same promise.
   *
   * @param options - `graceMs`: milliseconds that running requests may take. @default 10 000
   */
  close(options?: { readonly graceMs?: number | undefined }): Promise<void>;
}

/** Default milliseconds that running requests may take after {@link RunningService.close}. */
const GRACE_MS = 10_000;

/**
 * Starts the service on a data directory and resumes jobs that an earlier run left unfinished.
 *
 * @param options - Address, data directory, engine, limits and logging.
 * @returns the service, listening at `url`.
 * @throws ConfigError `E_CONFIG` if another service uses the directory, the database is missing while other files exist, the database has a
 *   newer version, the port is taken, an API key is missing, the certificate cannot be read, the package of an option is missing, the
 *   storage cannot be used or belongs to another database, or an option of the embedded engine is not valid or is given together with
 *   `engine`. Nothing is written if an option of the engine is not valid.
 * @throws BaseModelError `E_BASE_MODEL` naming a model of `baseModels` that cannot be loaded, and the reason.
 * @throws DataCorruptedError `E_DATA_CORRUPTED` if the database is damaged, or lacks acknowledged changes because its write-ahead log was
 *   lost.
 * @throws EngineError `E_ENGINE` for the device "webgpu" if no GPU can be opened.
 * @throws EngineMissingError `E_ENGINE_MISSING` if a native binary, or for a Postgres database the package `pg`, cannot be loaded.
 * @throws UnavailableError `E_UNAVAILABLE` if the server of a Postgres database cannot be reached, or the storage does not answer.
 * @throws NoSpaceError `E_NO_SPACE` if the disk is too full to start.
 * @example
 * ```ts
 * const service = await startService({ dataDir: "runs/data" });
 * const answer = await fetch(`${service.url}/v1/models`, { headers: { authorization: `Bearer ${service.apiKey}` } });
 * await service.close();
 * ```
 */
export async function startService(options: ServiceOptions = {}): Promise<RunningService> {
  const { host = "127.0.0.1", port = 0, logger = stderrLogger } = options;
  if (options.allowedBaseRoots === "any" && !isLoopback(host)) {
    throw new ConfigError(
      `Expected \`allowedBaseRoots\` to be a list of directories for host '${host}', which other machines can reach, got "any"`,
      { param: "allowedBaseRoots" },
    );
  }
  const certificate = options.tls && (await readCertificate(options.tls));
  const startEngine = await checkEngine(options);
  const directory = await openDataDirectory(options.dataDir ?? defaultDataDirectory());
  const limits: ServiceLimits = { ...DEFAULT_LIMITS, ...definedOnly(options.limits) };
  const start: Start = { options, host, directory, limits, undo: [], logger };
  const { undo } = start;
  try {
    const data = await openData(start);
    // The metrics are created before the server whose requests they count.
    let requests: UnansweredRequests | null = null;
    const { context, metrics } = await startParts(start, data, { startEngine, runningRequests: () => requests?.count ?? 0 });
    const http = createHttp(start, { context, metrics, apiKey: data.apiKey, certificate });
    requests = http.requests;
    const url = await startListening(http.server, { host, port });
    undo.push(() => removeServiceFile(directory, url));
    await data.unlessFull("service.json", () => data.space.freeing(() => writeServiceFile(directory, url)));
    await data.space.refill();
    context.jobs.wake();
    undo.push(...startPeriodicWork(context));
    let closing: Promise<void> | undefined;
    return {
      url,
      baseUrl: url,
      inferenceUrl: `${url}/v1`,
      apiKey: data.apiKey,
      dataDir: directory.root,
      unref: () => http.sockets.unref(),
      reloadCertificate: () => http.renewal?.reload() ?? Promise.resolve(),
      close: ({ graceMs = GRACE_MS } = {}) => (closing ??= shutDown(start, { context, http, graceMs })),
    };
  } catch (error) {
    await undoAll(undo, start.logger);
    throw toStartError(directory.root, error);
  }
}

/** Starts cleanups, recordings and verifications. Returns the functions that stop them. */
function startPeriodicWork(context: ServiceContext): Undo[] {
  const { keys, quotas, rollouts, logger } = context;
  return [
    startAgeCleanup(context),
    startSessionExpiry(context),
    keys.startRecording(logger),
    quotas.startRecording(logger),
    startFileExpiry(context),
    rollouts.cleanup.start(),
    () => rollouts.leases.close(),
    keepScrubbing(context),
    keepSweeping(context),
  ];
}

/** Parts of a running service that its shutdown closes in a certain order, before all steps of the start are reverted. */
interface RunningParts {
  readonly context: ServiceContext;
  readonly http: ReturnType<typeof createHttp>;
  /** Max milliseconds that running requests may take. */
  readonly graceMs: number;
}

/** Shuts a service down, see {@link RunningService.close}. */
async function shutDown({ undo, logger }: Start, { context, http, graceMs }: RunningParts): Promise<void> {
  http.drain();
  // These end the long polls, so that the requests below need not wait for them.
  context.sessions.close();
  const leasesClosed = context.rollouts.leases.close();
  const jobsClosed = context.jobs.close();
  await http.close(graceMs);
  await jobsClosed;
  await leasesClosed;
  // Closes the engine and the store last, because they were opened first.
  await undoAll(undo, logger);
}

/** Start of a service, in the steps of {@link startService}. */
interface Start {
  readonly options: ServiceOptions;
  readonly host: string;
  readonly directory: DataDirectory;
  readonly limits: ServiceLimits;
  /** Functions that revert the steps so far. */
  readonly undo: Undo[];
  /** Logger of the options; {@link openData} replaces it by one that removes secrets. */
  logger: ServiceLogger;
}

/** Database, storage and key of a service. */
type ServiceData = Awaited<ReturnType<typeof openData>>;

/** Opens the database and the storage of a data directory, and cleans up after an interrupted service. Replaces `start.logger`. */
async function openData(start: Start) {
  const { options, host, directory, limits, undo, logger } = start;
  const databaseAddress = databaseUrl(options.database);
  // Processes on one Postgres database share the data directory.
  if (databaseAddress === null) undo.push(await lockDataDirectory(directory));
  const reserve = new Reserve(directory.reserve);
  const space = new DiskSpace({ root: directory.root, minFreeBytes: limits.minFreeBytes, reserve, logger });
  const unlessFull = onFullDisk(logger);
  // Aborted when the service closes.
  const closing = new AbortController();
  const store = await openDatabase({ url: databaseAddress, directory, space, logger, signal: closing.signal });
  undo.push(() => store.destroy());
  await removeManifest(directory.root);
  undo.push(() => closing.abort());
  const apiKey = await resolveApiKey(directory, { apiKey: options.apiKey, host });
  // Only a limit that is given is an error without a storage; the default is not.
  const { maxCacheBytes } = options.limits ?? {};
  const location = { url: storageUrl(options.storage), maxCacheBytes, defaultCacheBytes: limits.maxCacheBytes };
  const storage = await openStorage({ ...location, store, directory, logger });
  undo.push(() => storage.close());
  // From here on, the secrets are known, and the entries of `start.logger` are redacted.
  const secrets = [apiKey, options.upstream?.apiKey, options.hub === null ? undefined : hubToken(options.hub)];
  const redactKeys = createRedactor([...secrets, ...(storage.remote?.secrets ?? [])]);
  const redact = (text: string) => redactEncoded(text, (plain) => withoutSecrets(withoutSessionKeys(redactKeys(plain))));
  start.logger = redacting(logger, redact);
  const blobs = new BlobStore(directory, storage);
  await unlessFull("An interrupted service's leftovers", () =>
    space.freeing(() => recover({ store, directory, blobs, logger: start.logger })),
  );
  await storage.open();
  return { store, storage, blobs, space, apiKey, redact, unlessFull };
}

/** Starts the engine and the observers, and creates the parts that routes and jobs share. */
async function startParts(
  { options, directory, limits, undo, logger }: Start,
  { store, storage, blobs, space, redact, unlessFull }: ServiceData,
  { startEngine, runningRequests }: { readonly startEngine: StartEngine | null; readonly runningRequests: () => number },
) {
  const hub = options.hub === null ? null : createHub(options.hub ?? {}, { dataDir: directory.root, logger });
  undo.push(() => hub?.close());
  const engine = startEngine === null ? options.engine! : await startEngine(hub, logger);
  undo.push(() => engine.close());
  const onUnloadFailure = logFailure(logger, "An adapter could not be unloaded from an upstream server");
  const upstream = options.upstream === undefined ? null : await connectPool(options.upstream, onUnloadFailure);
  undo.push(() => upstream?.close());
  const observed = { store, engine, space, minFreeBytes: limits.minFreeBytes, runningRequests };
  const { observer, metrics } = await createObservation(observed, options, redact);
  undo.push(() => metrics?.close());
  const { baseModels = {} } = options;
  const opened = { store, directory, storage, blobs, space, limits, logger };
  const context = createContext({ ...opened, engine, upstream, hub, baseModels, observer });
  undo.push(() => context.work.close());
  undo.push(() => context.jobs.close());
  await context.bases.checkGiven();
  // The budget may have changed since the last start.
  await unlessFull("Checkpoints beyond the budget", () => context.retention.enforceBudget());
  return { context, metrics };
}

/** Parts that the HTTP server needs. */
interface HttpParts extends Awaited<ReturnType<typeof startParts>> {
  readonly apiKey: string;
  /** Certificate for HTTPS; undefined for HTTP. */
  readonly certificate: Awaited<ReturnType<typeof readCertificate>> | undefined;
}

/** Creates the HTTP server with all routes, which does not listen yet. */
function createHttp({ options, directory, limits, undo, logger }: Start, { context, metrics, apiKey, certificate }: HttpParts) {
  // Aborted when requests that still run after the grace period are cut off.
  const cut = new AbortController();
  let isDraining = false;
  const dashboard = createDashboard({ runs: options.runs ?? ["runs"], dataDir: directory.root });
  const slices = new TimeSlices();
  const { auditLog = false } = options;
  const app = createApp(context, { apiKey, slices, dashboard, chatLimits: options.limits?.chat, signal: cut.signal, metrics, auditLog });
  const toKeyOfSession = sessionPaths(context.sessions, { apiKey, keys: context.keys });
  const prepare = (request: IncomingMessage) =>
    toKeyOfSession(request)?.catch((error: unknown) =>
      toErrorResponse(error, { path: request.url ?? "", request: requestIdOf(request), logger }),
    );
  const server = createHttpServer((request, bindings) => (isDraining ? shuttingDown() : app.fetch(request, bindings)), {
    prepare,
    slices,
    tls: certificate,
  });
  const renewal = options.tls && renewCertificate(server as TlsServer, options.tls, logger);
  undo.push(() => renewal?.close());
  const sockets = trackSockets(server);
  const requests = trackRequests(server);
  limitSilence(server, limits.bodyTimeoutMs);
  return {
    server,
    sockets,
    requests,
    renewal,
    /** Answers new requests with 503, and ends the streams of the dashboard, which would otherwise last until they are cut off. */
    drain() {
      isDraining = true;
      dashboard.close();
    },
    /** Waits for running requests, and cuts them off after `graceMs`. */
    close: (graceMs: number) => closeServer(server, { graceMs, requests, onCut: () => cut.abort() }),
  };
}

/** Returns the properties that are not undefined. */
function definedOnly<T extends object>(values: T | undefined): Partial<T> {
  return Object.fromEntries(Object.entries(values ?? {}).filter(([, value]) => value !== undefined)) as Partial<T>;
}
