/** Archive of a checkpoint for the download route. */
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
import { baseFilesOf, type BaseFile } from "./base-files.ts";

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
  /** Directory of the saved state, and the function that reads and verifies its files; null if the checkpoint is the base model. */
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
  /** Functions that close the open files. */
  const closers: Closer[] = [];
  const closeAll = () => Promise.allSettled(closers.map((close) => close()));
  try {
    const entries: TarSource[] = [textEntry("checkpoint.json", JSON.stringify({ model, ...checkpoint }, null, 2))];
    const storedNames = state === null ? [] : (await readdir(state.path)).filter((name) => !PRIVATE_FILES.has(name));
    if (state !== null && !storedNames.some((name) => name.endsWith(".safetensors"))) {
      throw new UnsupportedError(
        "The engine of this service keeps the weights of its checkpoints elsewhere: there is nothing to download here",
        { param: "step" },
      );
    }
    // A full model takes configuration and tokenizer from the base, and its weights from the state.
    const needsBaseFiles = !isAdapter || includesBase;
    const withWeights = storedNames.length === 0 || isAdapter;
    const folder = isAdapter ? `${BASE_FOLDER}/` : "";
    const baseFiles = needsBaseFiles ? await baseFilesOf(base.directory, { withWeights }) : [];
    for (const baseFile of baseFiles) entries.push(await baseEntry(`${folder}${baseFile.name}`, baseFile, closers));
    if (state !== null) {
      for (const name of storedNames.sort())
        entries.push(await fileEntry(name, join(state.path, name), closers, (handle) => state.read(name, handle)));
    }
    // Imported lazily: most services create no archive.
    const { packTar } = await import("modern-tar/fs");
    return packTar(entries).once("close", () => void closeAll());
  } catch (error) {
    await closeAll();
    throw error;
  }
}

/** Closes an open file. */
type Closer = () => Promise<void>;

/** Returns the entry of a file of the base model. Adds the function that closes the file to `closers`. */
async function baseEntry(target: string, file: BaseFile, closers: Closer[]): Promise<TarSource> {
  switch (file.kind) {
    case "file":
      return fileEntry(target, file.path, closers);
    case "text":
      return textEntry(target, file.text);
    case "pieces":
      closers.push(file.close);
      return { type: "stream", target, size: file.size, mode: 0o644, content: Readable.from(file.pieces, { objectMode: false }) };
  }
}

/** Returns an entry with a text. */
function textEntry(target: string, text: string): TarSource {
  return { type: "content", target, content: text, mode: 0o644 };
}

/** Opens a file and returns its entry. Adds the function that closes the file to `closers`. `read` may verify the file while reading it. */
async function fileEntry(
  target: string,
  path: string,
  closers: Closer[],
  read: (file: FileHandle) => AsyncIterable<Uint8Array> = piecesOf,
): Promise<TarSource> {
  const handle = await openRegularFile(path);
  closers.push(() => handle.close());
  const { size } = await handle.stat();
  if (size === 0) return textEntry(target, "");
  return { type: "stream", target, size, mode: 0o644, content: Readable.from(read(handle), { objectMode: false }) };
}
