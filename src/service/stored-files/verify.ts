/** Verification of a data directory or a backup, for the command `whetstone verify`. */
import { lstat, mkdtemp } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DataCorruptedError } from "../../base/errors.ts";
import { remove } from "../disk/files.ts";
import type { Remote } from "../storage/remote.ts";
import { dataDirectoryAt, type DataDirectory } from "../disk/data-directory.ts";
import { openRegularFile } from "../../base/util/regular-file.ts";
import { isSnapshot } from "../store/sqlite.ts";
import type { Store } from "../store/tables.ts";
import { digestFile, type Digests } from "../disk/digests.ts";
import { filesOnDisk } from "../disk/on-disk.ts";
import { isInStorage, storedFiles, type StoredFile } from "./inventory.ts";
import { MANIFEST, readManifest } from "./manifest.ts";
import { recordedRemote, type RemoteOptions } from "./open-storage.ts";
import { recordsOf, type RecordsOptions } from "./records.ts";
import { isMissingFile } from "../../base/util/file-system-error.ts";

/** Stored file that does not match its database record, or has no recorded digest. */
export interface FileFinding {
  /** Path relative to the data directory. */
  readonly path: string;
  /** Name of the object that the file belongs to. */
  readonly subject: string;
}

/** Result of {@link verifyDataDirectory}. */
export interface Verification {
  readonly data_dir: string;
  /** Number of files that the database references. */
  readonly files: number;
  /** Number of bytes read and compared. */
  readonly bytes: number;
  readonly seconds: number;
  /** Files that the database references but that do not exist. */
  readonly missing: readonly FileFinding[];
  /** Files that differ from their digests or cannot be read. */
  readonly damaged: readonly FileFinding[];
  /** Files without a recorded digest. The service records it at their first use. */
  readonly unknown: readonly FileFinding[];
  /** Files that the database does not reference. The next start moves them to the quarantine; a service removes old ones from a storage. */
  readonly unreferenced: readonly string[];
}

/** State of a file: `unknown` is a file without a recorded digest. */
type State = "intact" | "missing" | "damaged" | "unknown";

/**
 * Verifies every file of a data directory against its digest, and a backup also against its manifest. Changes nothing, and may run while a
 * service uses the directory.
 *
 * The files of an S3 storage are read from it.
 *
 * @param root - Data directory to verify.
 * @param options - `storage`: URL of the storage. @default the one that the database records. `database`: address of a Postgres database
 *   with the records; a backup has its own. @default the SQLite database of the data directory
 * @returns counts, and the files that are missing, damaged, unknown or unreferenced.
 * @throws ConfigError `E_CONFIG` for a missing database, or one of a newer version.
 * @throws DataCorruptedError `E_DATA_CORRUPTED` if the database itself is damaged.
 */
export async function verifyDataDirectory(root: string, { storage, database = null }: RecordsOptions = {}): Promise<Verification> {
  const directory = dataDirectoryAt(root);
  // A backup has its own database.
  const isBackup = (await lstat(join(directory.root, MANIFEST)).catch(() => null)) !== null;
  const url = isBackup ? null : database;
  const records = await recordsOf(directory, url);
  return records.withStore((store) => verifyStored(directory, { store, isSqlite: url === null, storage }));
}

/** Records to verify the files of. */
interface VerifiedRecords extends RemoteOptions {
  readonly store: Store;
  /** Whether the records are in a SQLite file, as they are in every backup. */
  readonly isSqlite: boolean;
}

/** Compares the files with the records. */
async function verifyStored(directory: DataDirectory, { store, isSqlite, storage }: VerifiedRecords): Promise<Verification> {
  const startedMs = performance.now();
  const remote = await recordedRemote(store, storage);
  const reader = remote === null ? folderReader(directory) : remoteReader(directory, remote);
  try {
    const existingPaths = await reader.list();
    const manifest = isSqlite ? await readListedFiles(store, directory.root) : null;
    const files = addManifestFiles(await storedFiles(store, directory), manifest);
    const { states, bytes } = await readStates(reader, files);
    // A running service may have changed rows and files meanwhile, so only findings confirmed by a second reading are reported.
    const laterFiles = addManifestFiles(await storedFiles(store, directory), manifest);
    const { missing, damaged, unknown } = await confirmFindings(reader, states, laterFiles);
    return {
      data_dir: directory.root,
      files: files.size,
      bytes,
      seconds: (performance.now() - startedMs) / 1000,
      missing,
      damaged,
      unknown,
      unreferenced: [...new Set(existingPaths)].filter((storedPath) => !files.has(storedPath) && !laterFiles.has(storedPath)).toSorted(),
    };
  } finally {
    await remote?.close();
  }
}

/** Reads every file. Returns the states by path, and the number of bytes that the records name. */
async function readStates(reader: Reader, files: ReadonlyMap<string, CheckedFile>) {
  const states = new Map<string, State>();
  let bytes = 0;
  for (const file of files.values()) {
    states.set(file.path, await stateOf(reader, file));
    bytes += file.digest?.size_bytes ?? 0;
  }
  return { states, bytes };
}

/** Reads the files that are not intact again. Returns the findings about files that are still referenced, by state. */
async function confirmFindings(reader: Reader, states: ReadonlyMap<string, State>, laterFiles: ReadonlyMap<string, CheckedFile>) {
  const findings: Record<State, FileFinding[]> = { intact: [], missing: [], damaged: [], unknown: [] };
  for (const [storedPath, state] of states) {
    const file = laterFiles.get(storedPath);
    if (file === undefined || state === "intact") continue;
    const confirmedState = state === "unknown" ? state : await stateOf(reader, file);
    findings[confirmedState].push({ path: storedPath, subject: file.subject });
  }
  return findings;
}

/** Files listed by the manifest of a backup. */
interface ListedFiles {
  readonly files: Digests;
  /** State of the manifest itself. */
  readonly state: State;
}

/** Reads the manifest of a backup; null for a data directory. */
async function readListedFiles(store: Store, root: string): Promise<ListedFiles | null> {
  try {
    return { files: await readManifest(root), state: "intact" };
  } catch {
    const hasManifest = (await lstat(join(root, MANIFEST)).catch(() => null)) !== null;
    if (hasManifest) return { files: {}, state: "damaged" };
    // The database of a backup says that it belongs to one.
    return (await isSnapshot(store)) ? { files: {}, state: "missing" } : null;
  }
}

/**
 * Adds the files that only a manifest lists, such as the database and the key. A referenced file that the manifest lacks, or lists with
 * another digest, makes the manifest a damaged file.
 */
function addManifestFiles(files: Map<string, StoredFile>, manifest: ListedFiles | null): Map<string, CheckedFile> {
  if (manifest === null) return files;
  const isListed = ({ path, digest }: StoredFile) =>
    Object.hasOwn(manifest.files, path) && (digest === null || digest.sha256 === manifest.files[path]?.sha256);
  const state = manifest.state === "intact" && ![...files.values()].every(isListed) ? "damaged" : manifest.state;
  const subject = "the backup";
  const added = Object.entries(manifest.files).map(([path, digest]) => [path, { path, digest, subject }] as const);
  return new Map<string, CheckedFile>([...added, ...files, [MANIFEST, { path: MANIFEST, digest: null, subject, state }]]);
}

/** File to check. */
interface CheckedFile extends StoredFile {
  /** State that is known without reading the file. */
  readonly state?: State | undefined;
}

/** Returns the state of a file, by reading it unless its state is known. */
async function stateOf(reader: Reader, file: CheckedFile): Promise<State> {
  return file.state ?? reader.stateOf(file);
}

/** Reader of stored files. */
interface Reader {
  /** Lists the paths of all files. */
  readonly list: () => Promise<string[]>;
  readonly stateOf: (file: StoredFile) => Promise<State>;
}

/** Creates a reader of the data directory. */
function folderReader(directory: DataDirectory): Reader {
  return { list: () => filesOnDisk(directory), stateOf: (file) => stateOnDisk(directory.root, file) };
}

/** Creates a reader of a storage. Each file is fetched to the directory for temporary files of the system. */
function remoteReader(directory: DataDirectory, remote: Remote): Reader {
  return {
    async list() {
      const paths: string[] = [];
      for await (const { path } of remote.list()) paths.push(path);
      return paths;
    },
    async stateOf(file) {
      if (!isInStorage(file)) return stateOnDisk(directory.root, file);
      if (file.digest === null) return "missing";
      const scratch = await mkdtemp(join(tmpdir(), "whetstone-verify-"));
      try {
        return (await remote.get(file.path, file.digest, join(scratch, "file"))) ? "intact" : "missing";
      } catch (error) {
        if (error instanceof DataCorruptedError) return "damaged";
        throw error;
      } finally {
        await remove(scratch);
      }
    },
  };
}

/** Returns the state of a file in the data directory. */
async function stateOnDisk(root: string, { path: storedPath, digest }: StoredFile): Promise<State> {
  const path = join(root, storedPath);
  try {
    if (digest === null) {
      await (await openRegularFile(path, root)).close();
      return "unknown";
    }
    const { sha256, size_bytes } = await digestFile(path, root);
    return sha256 === digest.sha256 && size_bytes === digest.size_bytes ? "intact" : "damaged";
  } catch (error) {
    return isMissingFile(error) ? "missing" : "damaged";
  }
}
