/** Buffers for transfer to another thread. */

/** Returns a buffer with exactly the contents of `bytes`, copying only if `bytes` is a view of a part. */
export function ownBuffer(bytes: Uint8Array): ArrayBuffer {
  const { buffer, byteOffset, byteLength } = bytes;
  return byteOffset === 0 && byteLength === buffer.byteLength
    ? (buffer as ArrayBuffer)
    : (buffer.slice(byteOffset, byteOffset + byteLength) as ArrayBuffer);
}
