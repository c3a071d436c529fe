/** Command `whetstone serve`: the service in the foreground. `engine-options.ts` has the options of engine and upstream. */
import { join } from "node:path";
import { Command, InvalidArgumentError, Option } from "commander";
import { deferred } from "../base/util/deferred.ts";
import { logLine } from "../base/util/output.ts";
import { exitNow, onStop, type StopReason } from "./stop-signal.ts";
import { type OutputOptions, printResult } from "./output.ts";
import { collected, parseSize } from "./arguments.ts";
import { ConfigError } from "../base/errors.ts";
import type { RequestRecord, RunningService, ServiceLogger, TlsFiles } from "../service/index.ts";
import { addEngineOptions, engineOf, type EngineFlags, upstreamOf } from "./engine-options.ts";

/** Options of the command. */
interface ServeOptions extends EngineFlags, OutputOptions {
  readonly host: string;
  readonly port: number;
  readonly dataDir?: string;
  readonly database?: string;
  readonly checkpointBudget?: number;
  readonly minFree?: number;
  readonly retainJobs?: number;
  readonly retainArtifacts?: number;
  readonly retainQuarantine?: number;
  readonly scrubRate?: number;
  readonly storage?: string;
  readonly cacheSize?: number;
  readonly runs: readonly string[];
  readonly logRequests?: boolean;
  readonly logFormat: "text" | "json";
  readonly tlsCert?: string;
  readonly tlsKey?: string;
  readonly metrics?: boolean;
  readonly auditLog?: boolean;
  readonly tracing?: boolean;
  readonly traceContent?: boolean;
}

/** Milliseconds by unit of a time. */
const TIMES: Readonly<Record<string, number>> = { m: 60_000, h: 3_600_000, d: 86_400_000 };

/** Parses a time such as `12h` to milliseconds. */
function parseTime(text: string): number {
  const [, digits = "", unit = ""] = /^(\d+(?:\.\d+)?)\s*([mhd])$/iu.exec(text.trim()) ?? [];
  const factor = TIMES[unit.toLowerCase()];
  if (digits === "" || factor === undefined) throw new InvalidArgumentError("Expected a time such as 90m, 12h or 30d.");
  return Number(digits) * factor;
}

/** Parses a port. */
function parsePort(text: string): number {
  const port = /^\d{1,5}$/.test(text) ? Number(text) : NaN;
  if (!(port <= 65535)) throw new InvalidArgumentError("Expected a port from 0 to 65535 (0 = any free one).");
  return port;
}

/** Creates the command `whetstone serve`, which runs the service in the foreground until it receives a signal to stop. */
export function serveCommand(): Command {
  return addEngineOptions(new Command("serve"))
    .description("run the service: sampling and training over HTTP, until a signal stops it")
    .option("--host <address>", "address to listen on; any address but loopback needs WHETSTONE_API_KEY", "127.0.0.1")
    .option("--port <number>", "port to listen on; 0 = any free port", parsePort, 8321)
    .option("--tls-cert <path>", "certificate for HTTPS in PEM format, with its intermediate certificates; read again when it changes")
    .option("--tls-key <path>", "key of the certificate in PEM format")
    .option("--data-dir <path>", "data directory (default: WHETSTONE_HOME, or .whetstone)")
    .option(
      "--storage <url>",
      "S3 storage of checkpoints, artifacts and job files, s3://bucket/prefix?endpoint=…&region=… (default: WHETSTONE_STORAGE, or the one of the database; else the data directory)",
    )
    .option("--cache-size <size>", "max size of the local copies of files in an S3 storage, such as 50GB (default: 20GB)", parseSize)
    .option(
      "--database <url>",
      "Postgres database, postgres://user@host:5432/database (default: WHETSTONE_DATABASE, or a SQLite file in the data directory)",
    )
    .option(
      "--checkpoint-budget <size>",
      "max size of all checkpoints, such as 500MB or 20GB; the service deletes the oldest that are not needed (default: unlimited)",
      parseSize,
    )
    .option("--min-free <size>", "min free disk space, such as 500MB; below it, new work is rejected (default: 64 MiB)", parseSize)
    .option("--retain-jobs <time>", "retention of finished jobs with their events, such as 12h or 30d (default: unlimited)", parseTime)
    .option("--retain-artifacts <time>", "retention of artifact versions, such as 12h or 30d (default: unlimited)", parseTime)
    .option("--retain-quarantine <time>", "retention of files in the quarantine, such as 12h or 30d (default: 30d)", parseTime)
    .option(
      "--scrub-rate <size>",
      "max bytes per second that the daily verification of stored files reads, such as 20MB; 0 = no verification (default: 4MB)",
      parseSize,
    )
    .option("--runs <path>", "directory in which the dashboard finds training runs; repeatable (default: runs)", collected, [])
    .option("--log-requests", "log one line per request to standard error")
    .addOption(new Option("--log-format <format>", "format of log lines").choices(["text", "json"]).default("text"))
    .option("--tracing", "trace chat completions and training jobs with the OpenTelemetry SDK that the process has registered")
    .option("--trace-content", "with --tracing: traces have the contents of messages")
    .option("--audit-log", "record who created, trained, cancelled, downloaded and deleted what; `whetstone audit` lists the records")
    .option("--metrics", "collect metrics for Prometheus, which GET /metrics returns; needs the package prom-client")
    .action(serve);
}

/** Runs the command: registers the signal handlers, then runs the service until a signal stops it. */
async function serve(options: ServeOptions): Promise<void> {
  /** Reads the certificate again; does nothing before the service has started. */
  let reloadCertificate = (): void => {};
  // Without a terminal, SIGHUP asks a server to read its certificate again.
  const onHangUp = options.tlsCert === undefined || process.stdin.isTTY ? undefined : () => reloadCertificate();
  // Registered before the start, so that an interrupt during a long recovery is not lost.
  const stop = deferred<StopReason>();
  const removeHandlers = onStop((reason) => stop.resolve(reason), onHangUp);
  try {
    await serveUntil(stop.promise, options, (service) => {
      reloadCertificate = () => void service.reloadCertificate();
    });
  } finally {
    removeHandlers();
  }
}

/** Returns the function that logs requests. */
function requestLogger(format: ServeOptions["logFormat"], logger: ServiceLogger): (record: RequestRecord) => void {
  if (format === "text")
    return ({ id, method, path, status, durationMs }) => logLine(`${method} ${path} ${status} ${durationMs.toFixed(1)} ms ${id}`);
  return ({ id, method, path, route, entity, status, durationMs }) =>
    logger.info("Request", { request: id, method, path, route, entity, status, durationMs: Number(durationMs.toFixed(1)) });
}

/** Switches tracing on. @throws ConfigError `E_CONFIG` without a registered SDK, and for `--trace-content` alone. */
async function startTracing({ tracing, traceContent }: ServeOptions): Promise<void> {
  if (tracing === true) return (await import("../tracing/index.ts")).enableTracing({ content: traceContent });
  if (traceContent === true) throw new ConfigError("--trace-content needs --tracing", { param: "--trace-content" });
}

/** Returns the files of `--tls-cert` and `--tls-key`. @throws ConfigError `E_CONFIG` if only one of them is given. */
function tlsOf({ tlsCert: cert, tlsKey: key }: ServeOptions): TlsFiles | undefined {
  if (cert !== undefined && key !== undefined) return { cert, key };
  if (cert === undefined && key === undefined) return undefined;
  const missing = cert === undefined ? "--tls-cert" : "--tls-key";
  throw new ConfigError(`Expected both --tls-cert and --tls-key, got no ${missing}`, { param: missing });
}

/** Runs the service until `stop` resolves. @param onStart - Called when the service has started. */
async function serveUntil(stop: Promise<StopReason>, options: ServeOptions, onStart: (service: RunningService) => void): Promise<void> {
  // Imported lazily: `--help` needs no native binary.
  const { jsonLogger, startService } = await import("../service/index.ts");
  const upstream = upstreamOf(options);
  const tls = tlsOf(options);
  await startTracing(options);
  // Connecting to the server of an engine may take minutes. Until then nothing needs a clean shutdown, so that a signal ends the process.
  const engineOrReason = await Promise.race([engineOf(options), stop]);
  if (typeof engineOrReason === "string") return exitNow(engineOrReason);
  const engine = engineOrReason;
  const embeddedEngine = {
    baseModels: options.baseModel,
    allowedBaseRoots: options.baseRoot,
    device: options.device,
    deviceMemory: options.deviceMemory,
    weightPrecision: options.weightPrecision,
    rolloutPrecision: options.rolloutPrecision,
    hub: { cacheDir: options.hubCache, isOffline: options.offline },
  };
  const service = await startService({
    ...(engine === undefined ? embeddedEngine : { engine }),
    upstream,
    host: options.host,
    port: options.port,
    dataDir: options.dataDir,
    tls,
    metrics: options.metrics,
    auditLog: options.auditLog,
    storage: options.storage,
    database: options.database,
    runs: options.runs.length === 0 ? undefined : options.runs,
    limits: {
      maxCheckpointBytes: options.checkpointBudget ?? null,
      maxJobAgeMs: options.retainJobs ?? null,
      maxArtifactAgeMs: options.retainArtifacts ?? null,
      ...(options.retainQuarantine === undefined ? {} : { maxQuarantineAgeMs: options.retainQuarantine }),
      ...(options.minFree === undefined ? {} : { minFreeBytes: options.minFree }),
      ...(options.cacheSize === undefined ? {} : { maxCacheBytes: options.cacheSize }),
      ...(options.scrubRate === undefined ? {} : { scrubBytesPerSecond: options.scrubRate }),
    },
    logger: options.logFormat === "json" ? jsonLogger : undefined,
    onRequest: options.logRequests === true ? requestLogger(options.logFormat, jsonLogger) : undefined,
  }).catch(async (error: unknown) => {
    await engine?.close();
    throw error;
  });
  onStart(service);
  const isFromEnvironment = (process.env["WHETSTONE_API_KEY"] ?? "") !== "";
  const keySource = isFromEnvironment ? "WHETSTONE_API_KEY" : join(service.dataDir, "api-key");
  const uiCommand = options.dataDir === undefined ? "whetstone ui" : `whetstone ui --data-dir ${options.dataDir}`;
  printResult(options, { url: service.url, dataDir: service.dataDir, keySource }, ({ url }) => [
    `Listening on ${url}`,
    `API key: ${keySource}`,
    `Dashboard: ${url}/ui/, opened and logged in by \`${uiCommand}\``,
  ]);
  const reason = await stop;
  const event = reason === "parent-exit" ? "The package manager that started the service has ended" : `${reason} received`;
  logLine(`${event}: finishing requests; send SIGTERM again to stop now`);
  await service.close({ graceMs: 10_000 });
}
