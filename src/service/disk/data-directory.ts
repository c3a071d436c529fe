/** Layout of the data directory, its creation, and its small files: the key and the address of the running service. */
import { randomBytes } from "node:crypto";
import { chmod, lstat, mkdir } from "node:fs/promises";
import { dirname, join, resolve } from "node:path";
import { ConfigError } from "../../base/errors.ts";
import { readRegularFile } from "../../base/util/regular-file.ts";
import { tightenDataDirectory } from "./private-files.ts";
import { remove, writeDurably } from "./files.ts";
import { messageOf } from "../../base/util/values.ts";
import { isMissingFile } from "../../base/util/file-system-error.ts";

/** Absolute paths inside a data directory. */
export interface DataDirectory {
  readonly root: string;
  /** SQLite database; SQLite keeps further files next to it. */
  readonly database: string;
  /** Directory of checkpoints: `checkpoints/<model id>/<step>`. */
  readonly checkpoints: string;
  /** Directory of unfinished jobs: `jobs/<job id>` holds a job's payload and progress. */
  readonly jobs: string;
  /** Directory of token reports: `<job id>.json` for each RL job that requested one. */
  readonly tokens: string;
  /** Directory of artifact file contents, named by digest. */
  readonly blobs: string;
  /** Directory of uploads in progress; emptied at start. */
  readonly temporary: string;
  /** Directory that receives files the database does not mention, moved at start; see `quarantine.ts`. Created with the first such file. */
  readonly quarantine: string;
  /** File that reserves disk space for deletions on a full disk. */
  readonly reserve: string;
  /** File with the API key that the service has created. */
  readonly keyFile: string;
  /** File that announces the running service, see {@link ServiceFile}. */
  readonly serviceFile: string;
}

/** Max bytes of the key file and of `service.json`. */
const MAX_FILE_BYTES = 64 * 1024;

/** Contents of `service.json` while a service is running. */
export interface ServiceFile {
  readonly pid: number;
  readonly url: string;
  /** Start of the service, ISO 8601. */
  readonly started_at: string;
}

/** Returns the default data directory: `WHETSTONE_HOME`, or `.whetstone` in the working directory. */
export function defaultDataDirectory(): string {
  const home = process.env["WHETSTONE_HOME"];
  return home !== undefined && home !== "" ? home : ".whetstone";
}

/** Files of the database in a data directory; `whetstone.db-mark` belongs to the service, and the others to SQLite. */
const DATABASE_FILES = ["whetstone.db", "whetstone.db-wal", "whetstone.db-shm", "whetstone.db-mark"];
/** Other files in a data directory that the service creates. */
const OTHER_FILES = ["service.lock", "service.json", "api-key", "reserve"];
/** Directories in a data directory that the service creates. */
const DIRECTORIES = ["checkpoints", "jobs", "tokens", "artifacts", "tmp", "quarantine", "hub"];

/** Returns the paths of a data directory without creating anything. */
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
 * Creates the data directory and its missing subdirectories, and removes the permissions of other users from existing ones.
 *
 * @throws ConfigError `E_CONFIG` if a directory cannot be created, is a link, or belongs to another user and is accessible to others.
 */
export async function openDataDirectory(root: string): Promise<DataDirectory> {
  const directory = dataDirectoryAt(root);
  try {
    await mkdir(directory.root, { recursive: true, mode: 0o700 });
    const { checkpoints, jobs, tokens, blobs, temporary, quarantine } = directory;
    const created = [checkpoints, jobs, tokens, dirname(blobs), blobs, temporary];
    for (const path of [...created, quarantine, join(directory.root, "hub")]) {
      if ((await lstat(path).catch(() => null))?.isSymbolicLink() !== true) continue;
      throw new Error(`'${path}' is a link, which may lead out of it. Move the whole data directory instead`);
    }
    for (const path of created) await mkdir(path, { recursive: true, mode: 0o700 });
  } catch (cause) {
    throw new ConfigError(
      `The data directory '${directory.root}' cannot be created: ${messageOf(cause)}. Make it writable, or set WHETSTONE_HOME or \`dataDir\` to another directory`,
      { cause, param: "dataDir" },
    );
  }
  await tightenDataDirectory(directory.root, [...DATABASE_FILES, ...OTHER_FILES, ...DIRECTORIES]);
  return directory;
}

/** Reads the file of the running service. @returns null if the file is missing or unreadable. */
export async function readServiceFile(path: string): Promise<ServiceFile | null> {
  try {
    return JSON.parse(await readRegularFile(path, { maxBytes: MAX_FILE_BYTES })) as ServiceFile;
  } catch {
    return null;
  }
}

/** Writes `service.json`, which announces the service to clients on this machine. */
export async function writeServiceFile(directory: DataDirectory, url: string): Promise<void> {
  const contents: ServiceFile = { pid: process.pid, url, started_at: new Date().toISOString() };
  await writeDurably(directory.serviceFile, `${JSON.stringify(contents)}\n`);
}

/** Removes `service.json`, so that clients no longer find the service, unless the file announces another process on the directory. */
export async function removeServiceFile(directory: DataDirectory, url: string): Promise<void> {
  const file = await readServiceFile(directory.serviceFile);
  if (file === null || file.url === url) await remove(directory.serviceFile);
}

/** Reads the file with the key; empty if it does not exist. @throws ConfigError `E_CONFIG` if it cannot be read. */
async function readKeyFile(path: string): Promise<string> {
  try {
    return await readRegularFile(path, { maxBytes: MAX_FILE_BYTES });
  } catch (cause) {
    if (isMissingFile(cause)) return "";
    throw new ConfigError(
      `The API key cannot be read from '${path}': ${messageOf(cause)}. Repair the file, delete it, or set WHETSTONE_API_KEY`,
      { cause, param: "apiKey" },
    );
  }
}

/** Whether only programs of this machine can reach a service that listens on `host`. */
export function isLoopback(host: string): boolean {
  return host === "localhost" || host === "::1" || /^127(\.\d{1,3}){3}$/.test(host);
}

/**
 * Returns the API key that clients must send: `apiKey` if given, else `WHETSTONE_API_KEY`, else, on loopback only, a key created at the
 * first start and stored in the data directory, readable by its owner only.
 *
 * @param apiKey - Key that takes precedence over the environment.
 * @param host - Address that the service listens on.
 * @throws ConfigError `E_CONFIG` without a key for a host that other machines can reach, and for a key that is not 8 to 512 visible ASCII
 *   characters.
 */
export async function resolveApiKey(
  directory: DataDirectory,
  { apiKey, host }: { readonly apiKey?: string | undefined; readonly host: string },
): Promise<string> {
  const environmentKey = process.env["WHETSTONE_API_KEY"];
  const configuredKey = apiKey ?? (environmentKey === "" ? undefined : environmentKey);
  if (configuredKey !== undefined) {
    if (!/^[\x21-\x7e]{8,512}$/.test(configuredKey)) {
      throw new ConfigError("Expected the API key to be 8 to 512 visible ASCII characters without spaces", { param: "apiKey" });
    }
    return configuredKey;
  }
  if (!isLoopback(host)) {
    throw new ConfigError(
      `Expected an API key for host '${host}', which other machines can reach. Set WHETSTONE_API_KEY, or listen on 127.0.0.1`,
      { param: "apiKey" },
    );
  }
  const storedKey = (await readKeyFile(directory.keyFile)).trim();
  if (storedKey !== "") {
    await chmod(directory.keyFile, 0o600);
    return storedKey;
  }
  const newKey = randomBytes(32).toString("base64url");
  await writeDurably(directory.keyFile, `${newKey}\n`);
  return newKey;
}
