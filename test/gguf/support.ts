/** Small GGUF file for tests, and the positions of its fields. */
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { gunzipSync } from "node:zlib";
import { ORACLE } from "../export/support.ts";

/** Returns the bytes of a Llama model with a byte-level tokenizer of 640 tokens and matrices in Q8_0. */
export async function smallModel(): Promise<Buffer> {
  return gunzipSync(await readFile(join(ORACLE, "gguf-small.gguf.gz")));
}

/** Position of a field in a file. */
export interface Field {
  readonly kind: "count" | "length" | "text" | "type" | "value" | "dimension" | "offset";
  readonly at: number;
  readonly bytes: number;
}

/** Bytes of the value types of the format by number; 0 for strings and arrays. */
const WIDTHS = [1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8];

/** Returns the positions of all fields of a header, of long arrays only those of the first elements. */
export function fieldsOf(file: Buffer): { readonly fields: readonly Field[]; readonly headerBytes: number } {
  const fields: Field[] = [
    { kind: "count", at: 0, bytes: 4 },
    { kind: "count", at: 4, bytes: 4 },
    { kind: "count", at: 8, bytes: 8 },
    { kind: "count", at: 16, bytes: 8 },
  ];
  let at = 24;
  let isRecorded = true;
  const take = (kind: Field["kind"], bytes: number): number => {
    if (isRecorded) fields.push({ kind, at, bytes });
    at += bytes;
    return at - bytes;
  };
  const text = () => take("text", Number(file.readBigUInt64LE(take("length", 8))));
  const scalar = (type: number) => (type === 8 ? text() : take("value", WIDTHS[type]!));
  for (let key = Number(file.readBigUInt64LE(16)); key > 0; key--) {
    text();
    const type = file.readUInt32LE(take("type", 4));
    if (type !== 9) scalar(type);
    else {
      const elements = file.readUInt32LE(take("type", 4));
      const count = Number(file.readBigUInt64LE(take("count", 8)));
      for (let index = 0; index < count; index++) {
        isRecorded = index < 20;
        scalar(elements);
      }
      isRecorded = true;
    }
  }
  for (let tensor = Number(file.readBigUInt64LE(8)); tensor > 0; tensor--) {
    text();
    for (let left = file.readUInt32LE(take("count", 4)); left > 0; left--) take("dimension", 8);
    take("type", 4);
    take("offset", 8);
  }
  return { fields, headerBytes: at };
}
