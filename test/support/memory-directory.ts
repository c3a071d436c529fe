/** Directory for the temporary files of the tests that is not on a disk: a service synchronizes every commit, which takes milliseconds there. */
import { mkdir, readdir, rm, statfs } from "node:fs/promises";
import { freemem } from "node:os";
import { join } from "node:path";

/** Directory of a file system in memory, on Linux. */
const MEMORY = "/dev/shm";
const NAME = "whetstone-tests-";
/** Min room of the file system, and min free memory. */
const [MIN_ROOM_BYTES, MIN_FREE_BYTES] = [4 * 2 ** 30, 8 * 2 ** 30];

/** Creates the directory of this process and removes the directories of killed processes; null without room. */
export async function createMemoryDirectory(): Promise<string | null> {
  const disk = await statfs(MEMORY).catch(() => null);
  if (disk === null || disk.bavail * disk.bsize < MIN_ROOM_BYTES || freemem() < MIN_FREE_BYTES) return null;
  const left = (await readdir(MEMORY)).filter((name) => name.startsWith(NAME) && !isRunning(Number(name.slice(NAME.length))));
  await Promise.all(left.map((name) => rm(join(MEMORY, name), { recursive: true, force: true })));
  const directory = join(MEMORY, `${NAME}${process.pid}`);
  await mkdir(directory, { mode: 0o700 });
  return directory;
}

function isRunning(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === "EPERM";
  }
}
