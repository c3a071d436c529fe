/** A real file system of a few megabytes, to be filled. */
import { execFileSync, spawnSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { open, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { onTestFinished } from "vitest";

/** Whether this machine lets the tests mount a file system: Linux, as root, with the capability to mount. */
export const canMount: boolean = (() => {
  if (process.platform !== "linux" || process.getuid?.() !== 0) return false;
  const path = mkdtempSync(join(tmpdir(), "whetstone-mount-"));
  try {
    if (spawnSync("mount", ["-t", "tmpfs", "-o", "size=64k", "tmpfs", path]).status !== 0) return false;
    execFileSync("umount", [path]);
    return true;
  } finally {
    rmSync(path, { recursive: true, force: true });
  }
})();

/** A mounted file system that ends with the test. */
export interface SmallDisk {
  readonly path: string;
  /** Writes a file of zeros until not one byte more fits, apart from `leaveBytes`. */
  readonly fill: (leaveBytes?: number) => Promise<void>;
  /** Removes that file. */
  readonly empty: () => Promise<void>;
}

/** Mounts a file system of `megabytes`. Call it before anything that has files open there, so that it is unmounted last. */
export async function smallDisk(megabytes: number): Promise<SmallDisk> {
  const path = mkdtempSync(join(tmpdir(), "whetstone-disk-"));
  execFileSync("mount", ["-t", "tmpfs", "-o", `size=${megabytes}m`, "tmpfs", path]);
  onTestFinished(() => {
    execFileSync("umount", ["-l", path]);
    rmSync(path, { recursive: true, force: true });
  });
  const filler = join(path, "filler");
  return {
    path,
    async fill(leaveBytes = 0) {
      const file = await open(filler, "w");
      try {
        for (const size of [65536, 1]) {
          const piece = Buffer.alloc(size);
          for (;;) if ((await file.write(piece)).bytesWritten < size) break;
        }
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code !== "ENOSPC") throw error;
        await file.write(Buffer.alloc(1)).catch(() => undefined);
        if (leaveBytes > 0) await file.truncate((await file.stat()).size - leaveBytes);
      } finally {
        await file.close();
      }
    },
    empty: () => rm(filler, { force: true }),
  };
}
