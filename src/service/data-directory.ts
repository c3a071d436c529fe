import { randomBytes } from "node:crypto";
import { chmod, mkdir, readFile } from "node:fs/promises";
import { join, resolve } from "node:path";
import { ConfigError } from "../errors.ts";
import { remove, writeDurably } from "./files.ts";
import { lockFile } from "./store/connection.ts";
import { messageOf } from "./error-text.ts";

/** Where everything lies. */
export interface DataDirectory {
  readonly root: string;
  readonly database: string;
  /** `checkpoints/<model id>/<step>` */
  readonly checkpoints: string;
  /** `jobs/<job id>`: payload and progress of jobs that are not finished. */
  readonly jobs: string;
  /** `<job id>.json`: token reports of RL jobs that asked for one. */
  readonly tokens: string;
  /** Contents of artifact files, by digest. */
  readonly blobs: string;
  /** Uploads under way; emptied at start. */
  readonly temporary: string;
  /** Files that the database does not mention, moved here at a start; see `quarantine.ts`. Made when the first one is found. */
  readonly quarantine: string;
  /** Space that is kept for deletions on a full disk. */
  readonly reserve: string;
  readonly keyFile: string;
  readonly serviceFile: string;
}

/** What `service.json` says while a service runs. */
export interface ServiceFile {
  readonly pid: number;
  readonly url: string;
  readonly started_at: string;
}

/** `WHETSTONE_HOME`, or `.whetstone` in the working directory. */
export function defaultDataDirectory(): string {
  const home = process.env["WHETSTONE_HOME"];
  return home !== undefined && home !== "" ? home : ".whetstone";
}

/** Returns the paths of a data directory and creates nothing. */
export function dataDirectoryAt(root: string): DataDirectory {
  const absolute = resolve(root);
  return {
    root: absolute,
    database: join(absolute, "whetstone.db"),
    checkpoints: join(absolute, "checkpoints"),
    jobs: join(absolute, "jobs"),
    tokens: join(absolute, "tokens"),
    blobs: join(absolute, "artifacts", "blobs"),
    temporary: join(absolute, "tmp"),
    quarantine: join(absolute, "quarantine"),
    reserve: join(absolute, "reserve"),
    keyFile: join(absolute, "api-key"),
    serviceFile: join(absolute, "service.json"),
  };
}

/**
 * Creates the directories that are missing below `root`.
 *
 * @throws ConfigError `E_CONFIG` if one cannot be created.
 */
export async function openDataDirectory(root: string): Promise<DataDirectory> {
  const directory = dataDirectoryAt(root);
  try {
    for (const path of [directory.root, directory.checkpoints, directory.jobs, directory.tokens, directory.blobs, directory.temporary]) {
      await mkdir(path, { recursive: true, mode: 0o700 });
    }
  } catch (cause) {
    throw new ConfigError(`The data directory '${directory.root}' cannot be created: ${messageOf(cause)}`, {
      cause,
      param: "dataDir",
    });
  }
  return directory;
}

/**
 * Takes the directory for this process until the returned function is called or the process ends, however it ends.
 *
 * @throws ConfigError `E_CONFIG` while another service has it; the message names its URL.
 */
export async function lockDataDirectory(directory: DataDirectory): Promise<() => void> {
  const unlock = await lockFile(join(directory.root, "service.lock"));
  if (unlock !== null) return unlock;
  const other = await readServiceFile(directory.serviceFile);
  const where = other === null ? "a service that is starting or stopping" : `the service at ${other.url} (process ${other.pid})`;
  throw new ConfigError(
    `The data directory '${directory.root}' is in use by ${where}. Use that service, stop it, or choose another directory`,
    // The other service may be ending.
    { param: "dataDir", retryable: true },
  );
}

/** The running service's file, or null when there is none that can be read. */
export async function readServiceFile(path: string): Promise<ServiceFile | null> {
  try {
    return JSON.parse(await readFile(path, "utf8")) as ServiceFile;
  } catch {
    return null;
  }
}

/** Announces the service to clients on this machine. */
export async function writeServiceFile(directory: DataDirectory, url: string): Promise<void> {
  const contents: ServiceFile = { pid: process.pid, url, started_at: new Date().toISOString() };
  await writeDurably(directory.serviceFile, `${JSON.stringify(contents)}\n`);
}

export function removeServiceFile(directory: DataDirectory): Promise<void> {
  return remove(directory.serviceFile);
}

function isLoopback(host: string): boolean {
  return host === "localhost" || host === "::1" || /^127(\.\d{1,3}){3}$/.test(host);
}

/**
 * The key clients must send: the one given, `WHETSTONE_API_KEY`, or on loopback one made at the first start and kept in the data
 * directory, readable by its owner alone.
 *
 * @throws ConfigError `E_CONFIG` without a key for a host that others can reach, and for a key that no header can carry.
 */
export async function resolveApiKey(
  directory: DataDirectory,
  { apiKey, host }: { readonly apiKey?: string | undefined; readonly host: string },
): Promise<string> {
  const environment = process.env["WHETSTONE_API_KEY"];
  const given = apiKey ?? (environment === "" ? undefined : environment);
  if (given !== undefined) {
    if (!/^[\x21-\x7e]{8,512}$/.test(given)) {
      throw new ConfigError("Expected the API key to be 8 to 512 visible ASCII characters without spaces", { param: "apiKey" });
    }
    return given;
  }
  if (!isLoopback(host)) {
    throw new ConfigError(
      `Expected an API key for host '${host}', which other machines can reach. Set WHETSTONE_API_KEY, or listen on 127.0.0.1`,
      { param: "apiKey" },
    );
  }
  const kept = (await readFile(directory.keyFile, "utf8").catch(() => "")).trim();
  if (kept !== "") {
    await chmod(directory.keyFile, 0o600);
    return kept;
  }
  const made = randomBytes(32).toString("base64url");
  await writeDurably(directory.keyFile, `${made}\n`);
  return made;
}
