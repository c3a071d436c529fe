/** Reader of GGUF for tests: metadata, and tensors as stored. */
import { readFileSync } from "node:fs";

export interface GgufFile {
  readonly metadata: Readonly<Record<string, unknown>>;
  readonly tensors: ReadonlyMap<string, { readonly shape: number[]; readonly type: number; readonly data: Uint8Array }>;
}

/** Bytes per element of the element types of exported files. */
const ELEMENT_BYTES: Readonly<Record<number, number>> = { 0: 4, 1: 2, 8: 34 / 32, 30: 2 };

export function readGguf(path: string): GgufFile {
  const bytes = readFileSync(path);
  let at = 0;
  const take = (length: number) => (at += length) - length;
  const uint32 = () => bytes.readUInt32LE(take(4));
  const uint64 = () => Number(bytes.readBigUInt64LE(take(8)));
  const string = () => {
    const length = uint64();
    const start = take(length);
    return bytes.toString("utf8", start, start + length);
  };
  const value = (type: number): unknown => {
    if (type === 4) return uint32();
    if (type === 5) return bytes.readInt32LE(take(4));
    if (type === 6) return bytes.readFloatLE(take(4));
    if (type === 7) return bytes[take(1)] === 1;
    if (type === 8) return string();
    if (type !== 9) throw new Error(`Unexpected value type ${type}`);
    const [item, length] = [uint32(), uint64()];
    return Array.from({ length }, () => value(item));
  };
  if (bytes.toString("latin1", 0, take(4) + 4) !== "GGUF" || uint32() !== 3) throw new Error("No GGUF file of version 3");
  const [tensorCount, keyCount] = [uint64(), uint64()];
  const metadata = Object.fromEntries(Array.from({ length: keyCount }, () => [string(), value(uint32())]));
  const infos = Array.from({ length: tensorCount }, () => {
    const name = string();
    const shape = Array.from({ length: uint32() }, uint64).reverse();
    return { name, shape, type: uint32(), offset: uint64() };
  });
  const start = Math.ceil(at / 32) * 32;
  const tensors = new Map(
    infos.map(({ name, shape, type, offset }) => {
      const end = offset + shape.reduce((a, b) => a * b, ELEMENT_BYTES[type]!);
      return [
        name,
        { shape, type, data: new Uint8Array(bytes.buffer.slice(bytes.byteOffset + start + offset, bytes.byteOffset + start + end)) },
      ];
    }),
  );
  return { metadata, tensors };
}
