/** Checks of Node, the native packages and the data directory. */
import { constants } from "node:fs";
import { access, statfs } from "node:fs/promises";
import { dirname, join } from "node:path";
import { dataDirectoryAt, readServiceFile } from "../../service/disk/data-directory.ts";
import { loadSqlite, lockFile } from "../../service/store/connection.ts";
import { pathExists } from "../../base/util/file-system-error.ts";
import { formatBytes } from "../../base/util/units.ts";
import { type Check, guarded, pass, problem } from "./check.ts";

/** Free space below which a run may fill the disk, in bytes. */
const SCARCE_BYTES = 2e9;
/** Default of the service's `minFreeBytes`, below which it rejects new work. */
const MIN_FREE_BYTES = 64 * 1024 * 1024;

/** Checks the version of Node against `engines` of the package, such as `>=20.19`. */
export function checkNode(engines: string, version = process.versions.node): Check {
  const [minMajor = 0, minMinor = 0] = engines.replace(/^\D+/u, "").split(".").map(Number);
  const [major = 0, minor = 0] = version.split(".").map(Number);
  if (major > minMajor || (major === minMajor && minor >= minMinor)) return pass("node", `Node ${version}`);
  return problem("fail", "node", `Node ${version}, needs ${engines}`, "Install a newer Node from https://nodejs.org");
}

/** Loads the native packages of the engine and the database. */
export function checkNativePackages(): Promise<Check[]> {
  return Promise.all([
    guarded("engine", "npm rebuild onnxruntime-node, or reinstall the package on this platform", async () => {
      const { loadRuntime } = await import("../../engine/onnx/runtime/program.ts");
      await loadRuntime();
      return pass("engine", `onnxruntime loads on ${process.platform}-${process.arch}`);
    }),
    guarded("database", "npm rebuild @photostructure/sqlite, or use Node 22.16 or newer", async () => {
      const { DatabaseSync } = await loadSqlite();
      new DatabaseSync(":memory:", { timeout: 0, readOnly: false }).close();
      return pass("database", "SQLite loads");
    }),
  ]);
}

/** Returns the path itself, or its nearest ancestor that exists. */
async function nearestExisting(path: string): Promise<string> {
  return (await pathExists(path)) || dirname(path) === path ? path : nearestExisting(dirname(path));
}

/** Checks that a data directory can be written, has space, and is not locked by a process without a service. Creates nothing. */
export async function checkDataDirectory(root: string): Promise<Check[]> {
  const directory = dataDirectoryAt(root);
  const existing = await nearestExisting(directory.root);
  const isNew = existing !== directory.root;
  const remedy = `Make ${existing} writable, or set WHETSTONE_HOME to another directory`;
  const writable = await guarded("data directory", remedy, async () => {
    await access(existing, constants.W_OK | constants.X_OK);
    return pass("data directory", isNew ? `${directory.root} does not exist yet and can be created` : directory.root);
  });
  const space = await guarded("disk space", "Set WHETSTONE_HOME to a directory of another file system", async () => {
    const { bavail, bsize } = await statfs(existing);
    const free = bavail * bsize;
    const text = `${formatBytes(free)} free`;
    const cleaning = "Free disk space; `whetstone clean` lists what can be deleted";
    if (free < MIN_FREE_BYTES) return problem("fail", "disk space", `${text}: the service rejects new work`, cleaning);
    return free < SCARCE_BYTES ? problem("warn", "disk space", text, cleaning) : pass("disk space", text);
  });
  return [writable, space, ...(isNew ? [] : [await checkLock(directory.root)])];
}

/** Checks whether a service holds the lock of a data directory. */
async function checkLock(root: string): Promise<Check> {
  const path = join(root, "service.lock");
  return guarded("lock", "Check the permissions of service.lock", async () => {
    // Null if another process holds the lock. A lock file that does not exist is not created.
    const release = (await pathExists(path)) ? await lockFile(path) : () => undefined;
    const service = await readServiceFile(join(root, "service.json"));
    if (release !== null) {
      release();
      return pass("lock", "no process uses the data directory");
    }
    if (service !== null) return pass("lock", `used by the service at ${service.url} (process ${service.pid})`);
    return problem("warn", "lock", "a service is starting or stopping", "Run `whetstone doctor` again in some seconds");
  });
}
