import { readdir, type FileHandle } from "node:fs/promises";
import { join } from "node:path";
import { Readable } from "node:stream";
import type { TarSource } from "modern-tar/fs";
import { UnsupportedError } from "../../errors.ts";
import type { Checkpoint } from "../../schema/index.ts";
import type { BaseModelInfo } from "../../engine/port.ts";
import { openRegularFile, readRegularFile } from "../../util/regular-file.ts";
import { OPTIMIZER_FILE } from "./retention.ts";

/** What of a base's directory belongs to a whole model beside its weights. */
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
/** What only the service reads. */
const PRIVATE_FILES = new Set([OPTIMIZER_FILE, "state.json"]);
/** Keys of `config.json` that name the type of the stored weights: one in older files, one in newer. */
const DTYPE_KEYS = ["torch_dtype", "dtype"];

/** Size of the largest `config.json`, in bytes. */
const MAX_CONFIG_BYTES = 4 * 1024 * 1024;

/** A checkpoint's files and what to say of it. */
export interface ArchiveSource {
  readonly checkpoint: Checkpoint;
  /** `entity/project/name`. */
  readonly model: string;
  readonly base: BaseModelInfo;
  /** Directory of the saved state; null = the base itself. */
  readonly stateDirectory: string | null;
  /** Whether the state is an adapter. */
  readonly isAdapter: boolean;
}

/**
 * A checkpoint as a tar archive: a whole model in Hugging Face layout, or an adapter in PEFT's, and `checkpoint.json`, which says what
 * it is. Optimizer state stays here.
 *
 * All files are open before the first byte is sent: a deletion during the download takes nothing from it.
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
      // Trained weights are stored as float32, whatever the base's were.
      if (name === "config.json" && stateDirectory !== null)
        sources.push(content(name, asFloat32(await readRegularFile(path, { maxBytes: MAX_CONFIG_BYTES }))));
      else sources.push(await file(name, path, handles));
    }
    for (const name of stored.sort()) sources.push(await file(name, join(stateDirectory as string, name), handles));
    // Loaded only now: most services never pack anything.
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
