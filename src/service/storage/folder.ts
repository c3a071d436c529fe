/** The data directory as the storage of a service. */
import { join } from "node:path";
import type { DataDirectory } from "../disk/data-directory.ts";
import type { Digests } from "../disk/digests.ts";
import { pathExists } from "../../base/util/file-system-error.ts";
import { removeWhole } from "../disk/files.ts";
import type { Verifier } from "../disk/verifier.ts";
import type { Storage } from "./storage.ts";

/** Storage in the data directory: files are permanent once they are written, so {@link FolderStorage.keep} has no effect. */
export class FolderStorage implements Storage {
  readonly remote = null;
  readonly verifier: Verifier;
  readonly #directory: Pick<DataDirectory, "root" | "temporary">;

  constructor(directory: Pick<DataDirectory, "root" | "temporary">, verifier: Verifier) {
    this.#directory = directory;
    this.verifier = verifier;
  }

  open(): Promise<void> {
    return Promise.resolve();
  }

  keep(): Promise<void> {
    return Promise.resolve();
  }

  has(path: string): Promise<boolean> {
    return pathExists(join(this.#directory.root, path));
  }

  async provide(files: Digests, subjectOf: (path: string) => string): Promise<() => void> {
    const { root } = this.#directory;
    for (const [path, digest] of Object.entries(files)) await this.verifier.check({ root, storedPath: path }, digest, subjectOf(path));
    return () => undefined;
  }

  remove(path: string): Promise<boolean> {
    return removeWhole(join(this.#directory.root, path), this.#directory.temporary);
  }

  close(): Promise<void> {
    return Promise.resolve();
  }
}
