/** Command `whetstone ui`: a link to the dashboard of a running service, or of one that the command starts. */
import { stat } from "node:fs/promises";
import { resolve } from "node:path";
import { Command } from "commander";
import { z } from "zod";
import { runningService } from "../library/client/embedded.ts";
import { ArgumentError, ConfigError, NotFoundError } from "../base/errors.ts";
import { deferred } from "../base/util/deferred.ts";
import { openBrowser } from "./open-browser.ts";
import { type OutputOptions, printResult } from "./output.ts";
import { onStop } from "./stop-signal.ts";

/** Options of the command. */
interface UiOptions extends OutputOptions {
  readonly dataDir?: string;
  readonly open: boolean;
}

/** Address and key of a service. */
interface Address {
  readonly url: string;
  readonly apiKey: string;
}

/** Answer of `POST /ui/api/links`. */
const linkAnswer = z.looseObject({ url: z.string(), expires: z.string() });
/** Answer of a rejected request. */
const errorAnswer = z.looseObject({ error: z.looseObject({ message: z.string() }) });

/** Creates the command `whetstone ui`, which prints a one-time link to the dashboard and opens it in the browser. */
export function uiCommand(): Command {
  return new Command("ui")
    .description("open the dashboard; starts a service, until interrupted, if none runs on the data directory")
    .argument("[directories...]", "run directories, or directories that contain some, to show in addition")
    .option("--data-dir <path>", "data directory of the service (default: WHETSTONE_HOME, or .whetstone)")
    .option("--no-open", "print the link and open no browser; implied by --json")
    .action(run);
}

/** Runs the command: finds the service that runs, or starts one until a signal stops the command. */
async function run(directories: readonly string[], options: UiOptions): Promise<void> {
  const { dataDir } = options;
  const paths = directories.map((path) => resolve(path));
  const configured = configuredService(dataDir);
  if (configured === null) for (const path of paths) await requireDirectory(path);
  const running = configured ?? (await runningService({ dataDir, apiKey: keyFromEnvironment() }));
  if (running !== null) return show(running, paths, options);
  const stop = deferred<void>();
  const removeHandlers = onStop(() => stop.resolve());
  // Imported lazily: a service that runs already needs no native binary.
  const { startService } = await import("../service/index.ts");
  const service = await startService({ dataDir });
  try {
    await show(service, paths, options);
    await stop.promise;
  } finally {
    await service.close();
    removeHandlers();
  }
}

/** Returns the service that `WHETSTONE_BASE_URL` names; null if the variable is unset or `--data-dir` is given. */
function configuredService(dataDir: string | undefined): Address | null {
  const url = process.env["WHETSTONE_BASE_URL"]?.trim();
  if (url === undefined || url === "" || dataDir !== undefined) return null;
  const apiKey = keyFromEnvironment();
  if (apiKey === undefined) throw new ConfigError("Expected an API key for the service of WHETSTONE_BASE_URL: set WHETSTONE_API_KEY");
  return { url: url.replace(/\/+$/u, "").replace(/\/v1$/u, ""), apiKey };
}

/** Returns `WHETSTONE_API_KEY`; undefined if unset or empty. */
function keyFromEnvironment(): string | undefined {
  return process.env["WHETSTONE_API_KEY"]?.trim() || undefined;
}

/** Adds the directories to the dashboard, and prints a link. Opens the link unless `--no-open` or `--json` is given. */
async function show(service: Address, paths: readonly string[], options: UiOptions): Promise<void> {
  if (paths.length > 0) await post(service, "/ui/api/directories", { paths });
  const link = linkAnswer.parse(await post(service, "/ui/api/links", {}));
  printResult(options, link, ({ url }) => [`Dashboard: ${url}`, "The link works once, for one minute."]);
  if (options.open && options.json !== true) openBrowser(link.url);
}

/** Checks a directory on the machine of the service. The service does not report which paths exist. */
async function requireDirectory(path: string): Promise<void> {
  const stats = await stat(path).catch((error: unknown) => {
    throw new NotFoundError(`Expected a directory with training runs; ${path} does not exist`, { cause: error, param: "paths" });
  });
  if (!stats.isDirectory()) throw new ArgumentError(`Expected a directory with training runs, got the file ${path}`, { param: "paths" });
}

/** Sends a request and returns the JSON of the answer. @throws ConfigError `E_CONFIG` if the service does not answer or rejects it. */
async function post({ url, apiKey }: Address, path: string, content: object): Promise<unknown> {
  const { request } = await import("undici");
  const headers = { authorization: `Bearer ${apiKey}`, "content-type": "application/json" };
  const { statusCode, body } = await request(url + path, { method: "POST", headers, body: JSON.stringify(content) }).catch(
    (error: unknown) => {
      throw new ConfigError(`The service at ${url} does not answer. Start it with \`whetstone serve\``, { cause: error });
    },
  );
  const answer: unknown = await body.json().catch(() => null);
  if (statusCode < 300) return answer;
  const message = errorAnswer.safeParse(answer).data?.error.message ?? "no message";
  throw new ConfigError(`The service at ${url} answered ${path} with ${statusCode}: ${message}`);
}
