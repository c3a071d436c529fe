/**
 * Client of a model hub. Base models are fetched once by their hub path and cached, in the layout of the Hugging Face cache:
 * `models--<owner>--<name>/snapshots/<commit>/` has the files of a commit, and `refs/<revision>` names the commit of a branch or tag.
 */
import { mkdir } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { Agent, fetch as undiciFetch } from "undici";
import { DataError, NotFoundError, UnsupportedError, WhetstoneError } from "../../base/errors.ts";
import { writeDurably } from "../disk/files.ts";
import type { ServiceLogger } from "../common/logger.ts";
import { parseBaseModel } from "../../base/util/base-model.ts";
import { MAX_CONFIG_BYTES, readRegularFile, reasonOf } from "../../base/util/regular-file.ts";
import { messageOf } from "../../base/util/values.ts";
import { digestFile, type Digests, type FileDigest } from "../disk/digests.ts";
import { Verifier } from "../disk/verifier.ts";
import { filesToFetch, isComplete, missingFrom } from "./files.ts";
import { removeAbandoned, storeDownload } from "./incomplete.ts";
import { recordSnapshot, snapshotDigests } from "./recorded-digests.ts";
import { pathExists } from "../../base/util/file-system-error.ts";

/** Options of the model hub client. */
export interface HubOptions {
  /** URL of the hub. @default `HF_ENDPOINT`, or "https://huggingface.co" */
  readonly url?: string | undefined;
  /**
   * Cache directory in the layout of the Hugging Face cache.
   *
   * @default `HF_HUB_CACHE`, `hub` in `HF_HOME`, or `hub` in the data directory
   */
  readonly cacheDir?: string | undefined;
  /** Whether only cached models are used and no request is sent. @default `HF_HUB_OFFLINE` is 1 */
  readonly isOffline?: boolean | undefined;
  /** Access token for private and gated repositories. @default `HF_TOKEN` */
  readonly token?: string | undefined;
}

/** Model hub client; see {@link createHub}. */
export interface Hub {
  /**
   * Returns the directory of a base model from the cache, fetching the model first if necessary. Returns null if `base` is not a hub path.
   *
   * @throws NotFoundError `E_NOT_FOUND` if the hub has no such model, does not answer, or is disabled (offline), and if the cache cannot be
   *   written; the message states the cause.
   * @throws UnsupportedError `E_UNSUPPORTED` for a repository that lacks required files or a part of its weights.
   * @throws DataError `E_DATA` for a downloaded file with another size or digest than the hub lists.
   * @throws DataCorruptedError `E_DATA_CORRUPTED` for a fetched file that has changed since; checked once per process.
   */
  directoryOf(base: string): Promise<string | null>;
  /** Returns whether a base model is in the cache, without contacting the hub. */
  isKept(base: string): Promise<boolean>;
  close(): Promise<void>;
}

/** Commit id of Git. */
const COMMIT = /^[0-9a-f]{40}$/u;
/** Milliseconds to connect to the hub. */
const CONNECT_TIMEOUT_MS = 10_000;
/** Milliseconds without a received byte after which a request to the hub fails. */
const SILENCE_TIMEOUT_MS = 60_000;
/** Last sentence of the error about a damaged file. */
const REFETCH = "Remove the file from the cache of base models and start the service again, and it is fetched again";

/** Model on the hub: `owner/name`, optionally with `@revision` (a branch, tag or commit; default `main`). */
interface Repository {
  readonly name: string;
  readonly revision: string;
}

/** Options of the hub client with their defaults. */
interface Settings {
  readonly url: string;
  readonly cacheDir: string;
  readonly isOffline: boolean;
  readonly token: string | undefined;
  readonly logger: ServiceLogger;
}

/** Returns the token sent to the hub. */
export function hubToken({ token }: HubOptions = {}): string | undefined {
  return token ?? (process.env["HF_TOKEN"] || undefined);
}

/** Creates a hub client. A cached model is never looked up again, so a branch that moves on the hub does not change the base of a model. */
export function createHub(
  { url, cacheDir, isOffline, token }: HubOptions,
  { dataDir, logger }: { readonly dataDir: string; readonly logger: ServiceLogger },
): Hub {
  const env = (name: string) => process.env[name] || undefined;
  const home = env("HF_HOME");
  const settings: Settings = {
    url: (url ?? env("HF_ENDPOINT") ?? "https://huggingface.co").replace(/\/+$/u, ""),
    cacheDir: cacheDir ?? env("HF_HUB_CACHE") ?? (home === undefined ? join(dataDir, "hub") : join(home, "hub")),
    isOffline: isOffline ?? env("HF_HUB_OFFLINE") === "1",
    token: hubToken({ token }),
    logger,
  };
  /** Lookups of directories by hub path, so that a process verifies or fetches each model once. */
  const lookups = new Map<string, Promise<string>>();
  const agent = new Agent({
    connect: { timeout: CONNECT_TIMEOUT_MS },
    headersTimeout: SILENCE_TIMEOUT_MS,
    bodyTimeout: SILENCE_TIMEOUT_MS,
  });
  return {
    async directoryOf(base) {
      const repository = parseRepository(base);
      if (repository === null) return null;
      const earlierLookup = lookups.get(base);
      if (earlierLookup !== undefined) return earlierLookup;
      const lookup = findOrFetch(repository, settings, agent);
      lookups.set(base, lookup);
      // A failed lookup is removed, so that the next call retries.
      lookup.catch(() => lookups.delete(base));
      return lookup;
    },
    async isKept(base) {
      const repository = parseRepository(base);
      return repository !== null && (await findCached(repository, settings)) !== null;
    },
    close: () => agent.destroy(),
  };
}

/** Parses a hub path; null for the path of a directory. */
function parseRepository(base: string): Repository | null {
  const spec = parseBaseModel(base, "base_model");
  return spec.kind === "hub" ? { name: spec.repository, revision: spec.revision ?? "main" } : null;
}

/** Returns the folder of a model in the cache. */
function modelFolder({ name }: Repository, { cacheDir }: Settings): string {
  return join(cacheDir, `models--${name.replace("/", "--")}`);
}

/** Returns the directory of a cached model; null if the model is not in the cache or incomplete. */
async function findCached(repository: Repository, settings: Settings): Promise<string | null> {
  const { revision } = repository;
  const folder = modelFolder(repository, settings);
  const readRef = () => readRegularFile(join(folder, "refs", revision), { maxBytes: MAX_CONFIG_BYTES }).catch(() => "");
  const commit = COMMIT.test(revision) ? revision : (await readRef()).trim();
  const snapshot = join(folder, "snapshots", commit);
  return COMMIT.test(commit) && (await isComplete(snapshot)) ? snapshot : null;
}

/** Returns the directory of a model: verified from the cache, or fetched. */
async function findOrFetch(repository: Repository, settings: Settings, agent: Agent): Promise<string> {
  const { name, revision } = repository;
  const cached = await findCached(repository, settings);
  if (cached !== null) {
    await verifySnapshot(name, modelFolder(repository, settings), cached, settings.logger);
    return cached;
  }
  if (settings.isOffline) {
    throw new NotFoundError(
      `The base model '${name}' at revision '${revision}' is not in the cache of this service, and the service fetches nothing (offline). Start it once with access to ${settings.url}, or copy the model there`,
      { param: "base_model" },
    );
  }
  try {
    return await fetchModel(repository, settings, agent);
  } catch (error) {
    throw explain(error, repository, settings);
  }
}

/** Compares a cached snapshot with its recorded digests. @throws DataCorruptedError `E_DATA_CORRUPTED` naming the base model. */
async function verifySnapshot(name: string, folder: string, directory: string, logger: ServiceLogger): Promise<void> {
  const verifier = new Verifier(logger);
  for (const [file, digest] of Object.entries((await snapshotDigests(folder, basename(directory))) ?? {}))
    await verifier.check(
      { root: folder, storedPath: `snapshots/${basename(directory)}/${file}` },
      digest,
      `Base model '${name}' (${file})`,
      REFETCH,
    );
}

/** Size and digest of a file as the hub lists it; it lists no SHA-256 digest of small files. */
interface ListedFile {
  readonly size: number;
  readonly sha256: string | null;
}

/** Commit of a repository on the hub. */
interface RemoteCommit {
  /** Id of the commit that the revision stands for now. */
  readonly commit: string;
  /** All files by path. */
  readonly files: ReadonlyMap<string, ListedFile>;
  /** Downloads a file to `target`, and verifies it. */
  readonly download: (path: string, target: string) => Promise<FileDigest>;
}

/** Asks the hub for the commit of a revision and for its files. */
async function findCommit({ name, revision }: Repository, { url: hubUrl, token }: Settings, agent: Agent): Promise<RemoteCommit> {
  // Imported lazily: most services fetch nothing.
  const { modelInfo, listFiles, downloadFile } = await import("@huggingface/hub");
  const fetch = ((input: string, init?: object) =>
    undiciFetch(input, { ...init, dispatcher: agent })) as unknown as typeof globalThis.fetch;
  const common = { hubUrl, fetch, ...(token === undefined ? {} : { accessToken: token }) };
  const { sha: commit } = await modelInfo({ ...common, name, revision, additionalFields: ["sha"] });
  if (!COMMIT.test(commit)) throw new DataError(`The hub says '${commit}' is the commit of '${name}'; expected 40 hexadecimal digits`);
  const repo = { type: "model" as const, name };
  const files = new Map<string, ListedFile>();
  for await (const { type, path, size, lfs } of listFiles({ ...common, repo, revision: commit })) {
    if (type === "file") files.set(path, { size: lfs?.size ?? size, sha256: lfs?.oid ?? null });
  }
  return {
    commit,
    files,
    async download(path, target) {
      const blob = await downloadFile({ ...common, repo, path, revision: commit });
      if (blob === null) throw new DataError(`The hub lists ${path} of '${name}' and does not have it`);
      return storeDownload(blob, target, files.get(path) ?? { size: blob.size, sha256: null });
    },
  };
}

/** Fetches a model into the cache and returns its directory. Files that are there already are not fetched again. */
async function fetchModel(repository: Repository, settings: Settings, agent: Agent): Promise<string> {
  const { name, revision } = repository;
  const { url, logger } = settings;
  const folder = modelFolder(repository, settings);
  const { commit, files, download } = await findCommit(repository, settings, agent);
  const wanted = filesToFetch([...files.keys()]);
  if ("missing" in wanted) {
    throw new UnsupportedError(
      `The repository '${name}' on ${url} has no ${wanted.missing}: expected a model in Hugging Face layout with safetensors weights`,
      { param: "base_model" },
    );
  }
  const directory = join(folder, "snapshots", commit);
  await mkdir(directory, { recursive: true, mode: 0o700 });
  await removeAbandoned(join(folder, "snapshots"));
  const bytes = wanted.files.reduce((sum, path) => sum + (files.get(path)?.size ?? 0), 0);
  logger.info("Fetching a base model", { model: name, revision, commit, bytes });
  const digests = await fetchMissing({ folder, commit, files: wanted.files }, (path) => download(path, join(directory, path)));
  const missing = await missingFrom(directory);
  if (missing !== null) {
    throw new UnsupportedError(`The repository '${name}' on ${url} is not whole: its weights need ${missing}, and it has none`, {
      param: "base_model",
    });
  }
  await recordSnapshot(folder, commit, digests);
  // Written last, so that a revision with a recorded commit has all its files.
  if (revision !== commit) await recordCommit(folder, revision, commit);
  return directory;
}

/** Records the commit of a revision in the cache. */
async function recordCommit(folder: string, revision: string, commit: string): Promise<void> {
  const ref = join(folder, "refs", revision);
  await mkdir(dirname(ref), { recursive: true, mode: 0o700 });
  await writeDurably(ref, commit);
}

/** Downloads the files that a snapshot lacks. @returns the digests of all files by name. */
async function fetchMissing(
  { folder, commit, files }: { readonly folder: string; readonly commit: string; readonly files: readonly string[] },
  download: (file: string) => Promise<FileDigest>,
): Promise<Digests> {
  const recorded = await snapshotDigests(folder, commit);
  const digests: Record<string, FileDigest> = {};
  for (const file of files) {
    const path = join(folder, "snapshots", commit, file);
    const isPresent = await pathExists(path);
    digests[file] = isPresent ? (recorded?.[file] ?? (await digestFile(path, folder))) : await download(file);
  }
  return digests;
}

/** Converts a failure into an error that states the cause and the remedy. */
function explain(error: unknown, { name, revision }: Repository, { url, token, cacheDir, logger }: Settings): unknown {
  if (WhetstoneError.isInstance(error)) return error;
  const status = error instanceof Error && "statusCode" in error && typeof error.statusCode === "number" ? error.statusCode : null;
  const notFound = (text: string) => new NotFoundError(text, { cause: error, param: "base_model" });
  if (isDiskError(error)) {
    logger.warn("The cache of base models cannot be written", { cacheDir, error: error.message });
    return notFound(
      `The base model '${name}' cannot be kept in the cache of this service: ${reasonOf(error)}. Make room for it there, or name a directory that can be written with HF_HUB_CACHE`,
    );
  }
  if (status === 404) return notFound(`The hub at ${url} has no model '${name}' with a revision '${revision}'`);
  if (status === 401 || status === 403) {
    const remedy =
      token === undefined
        ? "Set HF_TOKEN to one that may read it"
        : "The token of HF_TOKEN may not read it, or its owner has not agreed to its terms";
    return notFound(`The hub at ${url} does not give out '${name}': it does not exist, is private, or asks for consent. ${remedy}`);
  }
  const cause = error instanceof Error && error.cause instanceof Error ? error.cause : error;
  return notFound(
    `The base model '${name}' cannot be fetched: the hub at ${url} ${status === null ? "is not there" : `answered ${status}`} (${messageOf(cause)}). Ask again when it is, name another with HF_ENDPOINT, or use a directory`,
  );
}

/** Error codes of a full or broken disk. A write that fails with one of them reports no path. */
const DISK_CODES = ["ENOSPC", "EDQUOT", "EIO", "EROFS"];

/** Whether the error comes from the file system rather than from the hub. */
function isDiskError(error: unknown): error is NodeJS.ErrnoException {
  if (!(error instanceof Error) || !("syscall" in error)) return false;
  return "path" in error || DISK_CODES.includes((error as NodeJS.ErrnoException).code ?? "");
}
