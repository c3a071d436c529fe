/** Whether a base's weights file is the one that its configuration asks for, told from its header alone. */
import { type FileHandle, open } from "node:fs/promises";
import { join } from "node:path";
import { DataError, UnsupportedError } from "../../errors.ts";
import type { ModelConfig } from "./model/config.ts";
import { baseLayout } from "./model/parameters.ts";
import { WEIGHTS_FILE } from "./model/weights.ts";

/** Longest header that is read. */
const MAX_HEADER_BYTES = 100 * 1024 * 1024;

/** Bytes per element of the types that can be read. */
const WIDTHS: Readonly<Record<string, number>> = { F32: 4, F16: 2, BF16: 2 };

interface HeaderEntry {
  readonly dtype: string;
  readonly shape: readonly number[];
  readonly data_offsets: readonly [number, number];
}

/**
 * Checks names, shapes, types and places of all tensors, not their numbers: what loading would refuse is refused here.
 *
 * @throws UnsupportedError `E_UNSUPPORTED` without the one weights file, or for an element type that cannot be read.
 * @throws DataError `E_DATA` for a file that cannot be read or is torn, or a tensor that is missing or has another shape.
 */
export async function verifyWeights(directory: string, config: ModelConfig): Promise<void> {
  const path = join(directory, WEIGHTS_FILE);
  const { entries, dataBytes } = await readHeader(path);
  for (const [name, entry] of entries) {
    if (!isEntry(entry)) throw new DataError(`${path}: the safetensors header does not describe tensor "${name}"`);
    const { dtype, shape, data_offsets: offsets } = entry;
    const width = WIDTHS[dtype];
    if (width === undefined) throw new UnsupportedError(`${path}: tensor "${name}" has type ${dtype}; F32, F16 and BF16 can be read`);
    const bytes = shape.reduce((a, b) => a * b, width);
    if (offsets[0] < 0 || offsets[1] - offsets[0] !== bytes || offsets[1] > dataBytes)
      throw new DataError(`${path}: tensor "${name}" does not lie inside the file`);
  }
  for (const { kind, shape, files } of baseLayout(config).parameters) {
    for (const { name, width } of files) {
      const expected = kind === "matrix" ? [width, shape[0]] : shape;
      const found = (entries.get(name) as HeaderEntry | undefined)?.shape;
      if (found?.join() !== expected.join()) {
        throw new DataError(
          `${path}: expected tensor "${name}" of shape [${expected.join(", ")}], ${found ? `got [${found.join(", ")}]` : "found none"}`,
        );
      }
    }
  }
}

async function readHeader(path: string): Promise<{ entries: ReadonlyMap<string, unknown>; dataBytes: number }> {
  let file: FileHandle;
  try {
    file = await open(path, "r");
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code === "ENOENT")
      throw new UnsupportedError(
        `Expected weights at ${path}, found no such file; weights split over several files are not carried out yet`,
        { cause },
      );
    throw new DataError(`${path} cannot be read: ${(cause as Error).message}`, { cause });
  }
  try {
    const { size } = await file.stat();
    const prefix = Buffer.alloc(8);
    const { bytesRead } = await file.read(prefix, 0, 8, 0);
    const length = bytesRead === 8 ? Number(prefix.readBigUInt64LE()) : Infinity;
    if (length > MAX_HEADER_BYTES || 8 + length > size)
      throw new DataError(`${path}: expected a safetensors file, its header does not fit in ${size} bytes`);
    const text = Buffer.alloc(length);
    await file.read(text, 0, length, 8);
    const header = parseObject(text.toString("utf8"));
    if (header === null) throw new DataError(`${path}: the safetensors header is not a JSON object`);
    return { entries: new Map(Object.entries(header).filter(([name]) => name !== "__metadata__")), dataBytes: size - 8 - length };
  } finally {
    await file.close();
  }
}

function parseObject(text: string): object | null {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === "object" && !Array.isArray(value) ? value : null;
  } catch {
    return null;
  }
}

function isEntry(value: unknown): value is HeaderEntry {
  const { dtype, shape, data_offsets: offsets } = (value ?? {}) as Partial<Record<keyof HeaderEntry, unknown>>;
  const isNumbers = (list: unknown): list is number[] => Array.isArray(list) && list.every((item) => Number.isSafeInteger(item));
  return typeof dtype === "string" && isNumbers(shape) && isNumbers(offsets) && offsets.length === 2;
}
