/** Copies of stored files in the data directory, bounded in bytes: the cache of `cached.ts`. */
import { randomUUID } from "node:crypto";
import { renameSync } from "node:fs";
import { stat } from "node:fs/promises";
import { join } from "node:path";
import type { DataDirectory } from "../disk/data-directory.ts";
import { remove } from "../disk/files.ts";
import { filesOnDisk } from "../disk/on-disk.ts";
import { Holds } from "../../base/util/leases.ts";

/** Copies of stored files. Beyond the limit, the least recently used copies are removed. A copy that is held is never removed. */
export class LocalCopies {
  readonly #directory: DataDirectory;
  readonly #maxBytes: number;
  readonly #holds = new Holds<string>();
  /** Sizes in bytes by path, least recently used first. */
  readonly #sizes = new Map<string, number>();
  #bytes = 0;

  /** @param maxBytes - Max bytes of all copies; those that are held may take more. */
  constructor(directory: DataDirectory, maxBytes: number) {
    this.#directory = directory;
    this.#maxBytes = maxBytes;
  }

  /** Total size of all copies in bytes. */
  get bytes(): number {
    return this.#bytes;
  }

  /** Adds the files that are in the data directory, in order of their last use, and removes copies beyond the limit. */
  async scan(): Promise<void> {
    const copies: { readonly path: string; readonly size: number; readonly usedMs: number }[] = [];
    for (const path of await filesOnDisk(this.#directory)) {
      const stats = await stat(join(this.#directory.root, path)).catch(() => null);
      if (stats !== null) copies.push({ path, size: stats.size, usedMs: Math.max(stats.atimeMs, stats.mtimeMs) });
    }
    for (const { path, size } of copies.sort((a, b) => a.usedMs - b.usedMs)) this.#set(path, size);
    await this.trim();
  }

  /** Keeps a copy, which may not exist yet, until the returned function is called. */
  hold(path: string): () => void {
    return this.#holds.hold(path);
  }

  /** Whether a copy exists; marks it as used. */
  use(path: string): boolean {
    const size = this.#sizes.get(path);
    if (size === undefined) return false;
    this.#set(path, size);
    return true;
  }

  /** Adds a complete copy, and removes others beyond the limit. */
  async add(path: string, bytes: number): Promise<void> {
    this.#set(path, bytes);
    await this.trim();
  }

  /** Forgets the copies at or below a path, which the caller removes. */
  forget(path: string): void {
    for (const copyPath of this.#sizes.keys()) if (copyPath === path || copyPath.startsWith(`${path}/`)) this.#delete(copyPath);
  }

  /** Removes the least recently used copies beyond the limit. */
  async trim(): Promise<void> {
    const movedPaths: string[] = [];
    for (const path of this.#sizes.keys()) {
      if (this.#bytes <= this.#maxBytes) break;
      if (this.#holds.isHeld(path)) continue;
      this.#delete(path);
      const movedPath = join(this.#directory.temporary, randomUUID());
      try {
        // Synchronous, so that no reader can provide the file again between the check of holds and the rename.
        renameSync(join(this.#directory.root, path), movedPath);
        movedPaths.push(movedPath);
      } catch {
        // The file does not exist, or another program has opened it on Windows.
      }
    }
    for (const movedPath of movedPaths) await remove(movedPath);
  }

  /** Adds a copy as the one that was used last. */
  #set(path: string, bytes: number): void {
    this.#delete(path);
    this.#sizes.set(path, bytes);
    this.#bytes += bytes;
  }

  /** Removes the entry of a copy, if there is one. */
  #delete(path: string): void {
    this.#bytes -= this.#sizes.get(path) ?? 0;
    this.#sizes.delete(path);
  }
}
