/** Digests of fetched base models: `digests/<commit>.json` beside `snapshots/<commit>/`, in the layout of the hub's cache. */
import { mkdir, readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { writeDurably } from "../files.ts";
import { digestsSchema, type Digests } from "../stored-files/digests.ts";

const FOLDER = "digests";

/** Records the digests of a snapshot's files by name. Written after the files, so a recorded snapshot is complete. */
export async function recordSnapshot(storage: string, commit: string, digests: Digests): Promise<void> {
  await mkdir(join(storage, FOLDER), { recursive: true });
  await writeDurably(join(storage, FOLDER, `${commit}.json`), `${JSON.stringify(digests, null, 1)}\n`);
}

/** Returns the digests of a snapshot's files by name; null for one that another program fetched, or that is older than digests. */
export async function snapshotDigests(storage: string, commit: string): Promise<Digests | null> {
  let text: string;
  try {
    text = await readFile(join(storage, FOLDER, `${commit}.json`), "utf8");
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return null;
    throw error;
  }
  return digestsSchema.parse(JSON.parse(text));
}

/** A snapshot whose digests are recorded. */
export interface RecordedSnapshot {
  /** `owner/name` of the base model. */
  readonly name: string;
  /** Folder of the base model in the cache, such as `models--owner--name`. */
  readonly folder: string;
  readonly commit: string;
  /** By the names of the files. */
  readonly digests: Digests;
}

/** Lists the snapshots of a cache whose digests are recorded. */
export async function recordedSnapshots(cacheDir: string): Promise<RecordedSnapshot[]> {
  const folders = (await readdir(cacheDir).catch(() => [])).filter((folder) => folder.startsWith("models--"));
  const found: RecordedSnapshot[] = [];
  for (const folder of folders) {
    for (const file of await readdir(join(cacheDir, folder, FOLDER)).catch(() => [])) {
      const commit = /^([0-9a-f]{40})\.json$/u.exec(file)?.[1];
      const digests = commit === undefined ? null : await snapshotDigests(join(cacheDir, folder), commit);
      if (digests !== null) found.push({ name: folder.slice("models--".length).replace("--", "/"), folder, commit: commit!, digests });
    }
  }
  return found;
}
