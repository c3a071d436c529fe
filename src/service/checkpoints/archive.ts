import { readdir, type FileHandle } from "node:fs/promises";
import { join } from "node:path";
import { Readable } from "node:stream";
import type { TarSource } from "modern-tar/fs";
import { UnsupportedError } from "../../errors.ts";
import type { Checkpoint } from "../../schema/index.ts";
import { type BaseModelInfo, OPTIMIZER_FILE } from "../../engine/port.ts";
import { MAX_CONFIG_BYTES, openRegularFile, readRegularFile } from "../../util/regular-file.ts";

/** Files of a base model's directory, other than weights, that belong to an exported model. */
const MODEL_FILES = [
  "config.json",
  "generation_config.json",
  "tokenizer.json",
  "tokenizer_config.json",
  "special_tokens_map.json",
  "added_tokens.json",
  "vocab.json",
  "merges.txt",
  "chat_template.jinja",
];
const WEIGHTS = /^model(-\d+-of-\d+)?\.safetensors(\.index\.json)?$/u;
/** Files of a saved state that only the service uses. */
const PRIVATE_FILES = new Set([OPTIMIZER_FILE, "state.json"]);
/** Keys of `config.json` with the data type of the stored weights: the older name and the newer one. */
const DTYPE_KEYS = ["torch_dtype", "dtype"];

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
  const { base, stateDirectory, isAdapter, checkpoint, model } = source;
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
    const ofBase = isAdapter
      ? []
      : (await readdir(base.directory)).filter((name) => MODEL_FILES.includes(name) || (stored.length === 0 && WEIGHTS.test(name)));
    for (const name of ofBase.sort()) {
      const path = join(base.directory, name);
      // Trained weights are stored as float32, regardless of the base's data type.
      if (name === "config.json" && stateDirectory !== null)
        sources.push(content(name, asFloat32(await readRegularFile(path, { maxBytes: MAX_CONFIG_BYTES }))));
      else sources.push(await file(name, path, handles));
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

function asFloat32(config: string): string {
  const parsed = JSON.parse(config) as Record<string, unknown>;
  for (const key of DTYPE_KEYS) if (key in parsed) parsed[key] = "float32";
  return `${JSON.stringify(parsed, null, 2)}\n`;
}
