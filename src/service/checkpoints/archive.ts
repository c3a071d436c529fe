import { readdir } from "node:fs/promises";
import { join } from "node:path";
import { Readable } from "node:stream";
import type { TarSource } from "modern-tar/fs";
import { UnsupportedError } from "../../errors.ts";
import type { Checkpoint } from "../../schema/index.ts";
import { type BaseModelInfo, OPTIMIZER_FILE } from "../../engine/port.ts";
import { openRegularFile } from "../../util/regular-file.ts";
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
  /** Directory of the saved state; null for the base itself. */
  readonly stateDirectory: string | null;
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
 * @returns the stream of the archive.
 * @throws UnsupportedError `E_UNSUPPORTED` if the engine stores no weights in the checkpoint.
 */
export async function archiveOf(source: ArchiveSource): Promise<Readable> {
  const { base, stateDirectory, isAdapter, includesBase, checkpoint, model } = source;
  const closers: (() => Promise<void>)[] = [];
  const closeAll = () => Promise.allSettled(closers.map((close) => close()));
  try {
    const sources: TarSource[] = [content("checkpoint.json", JSON.stringify({ model, ...checkpoint }, null, 2))];
    const stored = stateDirectory === null ? [] : (await readdir(stateDirectory)).filter((name) => !PRIVATE_FILES.has(name));
    if (stateDirectory !== null && !stored.some((name) => name.endsWith(".safetensors"))) {
      throw new UnsupportedError(
        "The engine of this service keeps the weights of its checkpoints elsewhere: there is nothing to download here",
        {
          param: "step",
        },
      );
    }
    const isWhole = !isAdapter || includesBase;
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
    for (const name of stored.sort()) sources.push(await file(name, join(stateDirectory as string, name), closers));
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

async function file(target: string, path: string, closers: (() => Promise<void>)[]): Promise<TarSource> {
  const handle = await openRegularFile(path);
  closers.push(() => handle.close());
  const { size } = await handle.stat();
  if (size === 0) return content(target, "");
  const read = async function* () {
    for await (const piece of handle.createReadStream({ autoClose: false, start: 0, highWaterMark: 1 << 20 })) yield piece as Uint8Array;
  };
  return { type: "stream", target, size, mode: 0o644, content: Readable.from(read(), { objectMode: false }) };
}
