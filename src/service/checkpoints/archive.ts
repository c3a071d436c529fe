import { readdir, type FileHandle } from "node:fs/promises";
import { join } from "node:path";
import { Readable } from "node:stream";
import type { TarSource } from "modern-tar/fs";
import { UnsupportedError } from "../../errors.ts";
import type { Checkpoint } from "../../schema/index.ts";
import { CONFIG_FILE, MODEL_FILES, withDtype } from "../../engine/onnx/model/model-files.ts";
import { type BaseModelInfo, OPTIMIZER_FILE } from "../../engine/port.ts";
import { MAX_CONFIG_BYTES, openRegularFile, readRegularFile } from "../../util/regular-file.ts";

const WEIGHTS = /^model(-\d+-of-\d+)?\.safetensors(\.index\.json)?$/u;
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
  const handles: FileHandle[] = [];
  const closeAll = () => Promise.allSettled(handles.map((handle) => handle.close()));
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
    const ofBase = (isWhole ? await readdir(base.directory) : []).filter(
      (name) => MODEL_FILES.includes(name) || (withWeights && WEIGHTS.test(name)),
    );
    for (const name of ofBase.sort()) {
      const path = join(base.directory, name);
      const target = isAdapter ? `${BASE_FOLDER}/${name}` : name;
      // Trained weights are stored as float32, regardless of the base's data type.
      if (name === CONFIG_FILE && !withWeights)
        sources.push(content(target, withDtype(await readRegularFile(path, { maxBytes: MAX_CONFIG_BYTES }), "float32")));
      else sources.push(await file(target, path, handles));
    }
    for (const name of stored.sort()) sources.push(await file(name, join(stateDirectory as string, name), handles));
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

async function file(target: string, path: string, handles: FileHandle[]): Promise<TarSource> {
  const handle = await openRegularFile(path);
  handles.push(handle);
  const { size } = await handle.stat();
  if (size === 0) return content(target, "");
  const read = async function* () {
    for await (const piece of handle.createReadStream({ autoClose: false, start: 0, highWaterMark: 1 << 20 })) yield piece as Uint8Array;
  };
  return { type: "stream", target, size, mode: 0o644, content: Readable.from(read(), { objectMode: false }) };
}
