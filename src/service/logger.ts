/** Where the service says what no answer can say. Fields never hold request bodies or keys. */
export interface ServiceLogger {
  info(message: string, fields?: Readonly<Record<string, unknown>>): void;
  warn(message: string, fields?: Readonly<Record<string, unknown>>): void;
  error(message: string, fields?: Readonly<Record<string, unknown>>): void;
}

/** Warnings and errors to standard error, one line each; nothing else. */
export const stderrLogger: ServiceLogger = {
  info: () => undefined,
  warn: (message, fields) => write("warn", message, fields),
  error: (message, fields) => write("error", message, fields),
};

function write(level: string, message: string, fields: Readonly<Record<string, unknown>> = {}): void {
  process.stderr.write(
    `${new Date().toISOString()} ${level} ${message}${Object.keys(fields).length > 0 ? ` ${JSON.stringify(fields)}` : ""}\n`,
  );
}

/** A logger that replaces `secret` wherever it would appear: a message may quote what a client sent. */
export function redacting(logger: ServiceLogger, secret: string): ServiceLogger {
  const clean = (text: string) => text.replaceAll(secret, "[key]");
  const cleanFields = (fields: Readonly<Record<string, unknown>> | undefined) =>
    fields === undefined ? undefined : (JSON.parse(clean(JSON.stringify(fields))) as Record<string, unknown>);
  return {
    info: (message, fields) => logger.info(clean(message), cleanFields(fields)),
    warn: (message, fields) => logger.warn(clean(message), cleanFields(fields)),
    error: (message, fields) => logger.error(clean(message), cleanFields(fields)),
  };
}
