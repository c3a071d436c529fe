/** Loggers of the service, and helpers for log entries. */
import { messageOf } from "../../base/util/values.ts";
import { logLine } from "../../base/util/output.ts";

/**
 * Logger of the service. Fields never hold request bodies or keys.
 *
 * @example
 * ```ts
 * const logger: ServiceLogger = {
 *   info: (message, fields) => console.log("info", message, fields),
 *   warn: (message, fields) => console.warn("warn", message, fields),
 *   error: (message, fields) => console.error("error", message, fields),
 * };
 * logger.info("Started", { port: 8080 });
 * logger.warn("Low on disk", { freeBytes: 1e8 });
 * logger.error("A job failed", { jobId: "7" });
 * ```
 */
export interface ServiceLogger {
  /**
   * Logs the normal course of events, such as a start or a finished job.
   *
   * @param message - Constant text of the event.
   * @param fields - Facts of this occurrence, JSON values.
   */
  info(message: string, fields?: Readonly<Record<string, unknown>>): void;
  /**
   * Logs a problem that the service handles by itself, such as a crashed worker that restarts.
   *
   * @param message - Constant text of the event.
   * @param fields - Facts of this occurrence, JSON values.
   */
  warn(message: string, fields?: Readonly<Record<string, unknown>>): void;
  /**
   * Logs a failure that a person should look at, such as a damaged file.
   *
   * @param message - Constant text of the event.
   * @param fields - Facts of this occurrence, JSON values.
   */
  error(message: string, fields?: Readonly<Record<string, unknown>>): void;
}

/** Logger that writes warnings and errors to standard error, one line each, and drops the rest. */
export const stderrLogger: ServiceLogger = {
  info: () => undefined,
  warn: (message, fields) => writeText("warn", message, fields),
  error: (message, fields) => writeText("error", message, fields),
};

/**
 * Logger that writes every line to standard error as one JSON object: `time` (ISO 8601, UTC), `level`, `message`, then the fields.
 *
 * @example
 * ```ts
 * import { jsonLogger, startService } from "whetstone/service";
 *
 * const service = await startService({ logger: jsonLogger });
 * await service.close();
 * ```
 */
export const jsonLogger: ServiceLogger = {
  info: (message, fields) => writeJson("info", message, fields),
  warn: (message, fields) => writeJson("warn", message, fields),
  error: (message, fields) => writeJson("error", message, fields),
};

/** Writes a line as a JSON object. */
function writeJson(level: string, message: string, fields: Readonly<Record<string, unknown>> = {}): void {
  const fixedMembers = { time: new Date().toISOString(), level, message };
  // A field cannot replace one of the fixed members.
  logLine(JSON.stringify({ ...fixedMembers, ...fields, ...fixedMembers }));
}

/** Writes a line as text: time, level, message, and the fields as JSON. */
function writeText(level: string, message: string, fields: Readonly<Record<string, unknown>> = {}): void {
  const json = Object.keys(fields).length > 0 ? ` ${JSON.stringify(fields)}` : "";
  logLine(`${new Date().toISOString()} ${level} ${message}${json}`);
}

/** Returns a handler of rejections that logs `message` as a warning, with `fields` and the error's message. */
export function logFailure(
  logger: Pick<ServiceLogger, "warn">,
  message: string,
  fields: Readonly<Record<string, unknown>> = {},
): (error: unknown) => void {
  return (error) => logger.warn(message, { ...fields, error: messageOf(error) });
}

/** Applies `redact` to every string of a JSON value, including property names. */
function redactedValue(value: unknown, redact: (text: string) => string): unknown {
  if (typeof value === "string") return redact(value);
  if (Array.isArray(value)) return value.map((item) => redactedValue(item, redact));
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([name, item]) => [redact(name), redactedValue(item, redact)]));
}

/** Returns a logger that removes secrets from messages and fields, which may quote client input, before it calls `logger`. */
export function redacting(logger: ServiceLogger, redact: (text: string) => string): ServiceLogger {
  const redactFields = (fields: Readonly<Record<string, unknown>> | undefined) => {
    if (fields === undefined) return undefined;
    const json = JSON.stringify(fields, (_, value: unknown) => (typeof value === "bigint" ? String(value) : value));
    return redactedValue(JSON.parse(json), redact) as Record<string, unknown>;
  };
  return {
    info: (message, fields) => logger.info(redact(message), redactFields(fields)),
    warn: (message, fields) => logger.warn(redact(message), redactFields(fields)),
    error: (message, fields) => logger.error(redact(message), redactFields(fields)),
  };
}

/** Returns the stack of a thrown value for logs, or its message if it has no stack. */
export function traceOf(error: unknown): string {
  return error instanceof Error ? (error.stack ?? error.message) : messageOf(error);
}
