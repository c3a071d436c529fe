import { readdir, type FileHandle } from "node:fs/promises";
import { join } from "node:path";
import { Readable } from "node:stream";
import type { TarSource } from "modern-tar/fs";
import { UnsupportedError } from "../../base/errors.ts";
import type { Checkpoint } from "../../base/schema/index.ts";
import { type BaseModelInfo, OPTIMIZER_FILE } from "../../engine/port.ts";
import { openRegularFile } from "../../base/util/regular-file.ts";
import { piecesOf } from "../disk/digests.ts";
import type { ReadVerified } from "../disk/verifier.ts";
import { baseFilesOf } from "./base-files.ts";

/** Folder of an archive with the base model of an adapter. */
const BASE_FOLDER = "base";
/** Files of a saved state that only the service uses. */
const PRIVATE_FILES = new Set([OPTIMIZER_FILE, "state.json"]);
/** Checkpoint to archive. */
export interface ArchiveSource {
  readonly checkpoint: Checkpoint;
  /** Qualified name of the model, `entity/project/name`. */
  readonly model: string;
  readonly base: BaseModelInfo;
  /** Directory of the saved state, and the function that reads its files; null for the base itself. */
  readonly state: { readonly path: string; readonly read: ReadVerified } | null;
  /** Whether the state is an adapter. */
  readonly isAdapter: boolean;
  /** Whether the archive of an adapter contains the base model, too, in the folder `base`. */
  readonly includesBase: boolean;
}

/**
 * Packs a checkpoint as a tar archive: a full model in Hugging Face layout or an adapter in PEFT layout, plus `checkpoint.json` with the
 * checkpoint's metadata. Optimizer state is not included.
 *
 * All files are opened before the first byte is sent, so that a deletion during the download does not affect it.
 *
 * @returns the stream of the archive. It ends with an error before the last byte of a damaged file of the state.
 * @throws UnsupportedError `E_UNSUPPORTED` if the engine stores no weights in the checkpoint.
 */
export async function archiveOf(source: ArchiveSource): Promise<Readable> {
  const { base, state, isAdapter, includesBase, checkpoint, model } = source;
  const closers: (() => Promise<void>)[] = [];
  const closeAll = () => Promise.allSettled(closers.map((close) => close()));
  try {
    const sources: TarSource[] = [content("checkpoint.json", JSON.stringify({ model, ...checkpoint }, null, 2))];
    const stored = state === null ? [] : (await readdir(state.path)).filter((name) => !PRIVATE_FILES.has(name));
    if (state !== null && !stored.some((name) => name.endsWith(".safetensors"))) {
      throw new UnsupportedError(
        "The engine of this service keeps the weights of its checkpoints elsewhere: there is nothing to download here",
        { param: "step" },
      );
    }
    const isWhole = !isAdapter || includesBase;
    // The weights of a full model are in its state.
    const withWeights = stored.length === 0 || isAdapter;
    const folder = isAdapter ? `${BASE_FOLDER}/` : "";
    for (const each of isWhole ? await baseFilesOf(base.directory, withWeights) : []) {
      const target = `${folder}${each.name}`;
      if (each.kind === "file") sources.push(await file(target, each.path, closers));
      else if (each.kind === "text") sources.push(content(target, each.text));
      else {
        closers.push(each.close);
        sources.push({ type: "stream", target, size: each.size, mode: 0o644, content: Readable.from(each.pieces, { objectMode: false }) });
      }
    }
    if (state !== null) {
      for (const name of stored.sort())
        sources.push(await file(name, join(state.path, name), closers, (handle) => state.read(name, handle)));
    }
    // Imported lazily: most services create no archive.
    const { packTar } = await import("modern-tar/fs");
    return packTar(sources).once("close", () => void closeAll());
  } catch (error) {
    await closeAll();
    throw error;
  }
}

function content(target: string, text: string): TarSource {
  return { type: "content", target, content: text, mode: 0o644 };
}

/** Opens a file for the archive. Its handle is added to `closers`, and `read` may verify it while it is read. */
async function file(
  target: string,
  path: string,
  closers: (() => Promise<void>)[],
  read: (file: FileHandle) => AsyncIterable<Uint8Array> = piecesOf,
): Promise<TarSource> {
  const handle = await openRegularFile(path);
  closers.push(() => handle.close());
  const { size } = await handle.stat();
  if (size === 0) return content(target, "");
  return { type: "stream", target, size, mode: 0o644, content: Readable.from(read(handle), { objectMode: false }) };
}
