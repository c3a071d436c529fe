/** Download of an object to a file, which continues after a cut connection and is verified. */
import { createHash } from "node:crypto";
import { open, type FileHandle } from "node:fs/promises";
import { DataCorruptedError } from "../../../base/errors.ts";
import type { FileDigest } from "../../disk/digests.ts";
import { closing, remove } from "../../disk/files.ts";
import type { S3Requests } from "./requests.ts";

/** Object to download. */
interface Download {
  readonly key: string;
  /** Path of the new file. */
  readonly target: string;
  readonly digest: FileDigest;
  readonly signal?: AbortSignal | undefined;
}

/** Bytes of an object that were received and written so far. */
interface Received {
  /** SHA-256 of the bytes. */
  hash: ReturnType<typeof createHash>;
  /** Number of bytes. */
  bytes: number;
}

/**
 * Downloads an object to a new file. After an error nothing is left.
 *
 * @returns false if the object does not exist.
 * @throws DataCorruptedError `E_DATA_CORRUPTED` for an object that differs from its digest.
 * @throws StorageError `E_UNAVAILABLE` if the storage does not send it.
 */
export async function download(requests: S3Requests, object: Download): Promise<boolean> {
  const { target, digest } = object;
  try {
    return await closing(await open(target, "wx", 0o600), async (file) => {
      const received: Received = { hash: createHash("sha256"), bytes: 0 };
      if (!(await receive(requests, object, file, received))) {
        await remove(target);
        return false;
      }
      if (received.bytes === digest.size_bytes && received.hash.digest("hex") === digest.sha256) return true;
      throw new DataCorruptedError(
        `The storage has other bytes than were stored for the object '${object.key}': expected ${digest.size_bytes} bytes with the SHA-256 ${digest.sha256}`,
      );
    });
  } catch (error) {
    await remove(target);
    throw error;
  }
}

/**
 * Writes the object to the file. Requests the remaining bytes after a cut connection; the limit of attempts counts attempts without new
 * bytes.
 *
 * @returns false if the object does not exist.
 */
async function receive(requests: S3Requests, { key, digest, signal }: Download, file: FileHandle, received: Received): Promise<boolean> {
  for (let attempt = 0; ;) {
    const startByte = received.bytes;
    const answer = await requests.send({ method: "GET", key, headers: startByte === 0 ? {} : { range: `bytes=${startByte}-` }, signal });
    if (answer === null) return false;
    if (startByte > 0 && answer.status !== 206) {
      // The server ignores ranges and sends the object from its start.
      received.hash = createHash("sha256");
      received.bytes = 0;
    }
    let writeError: Error | null = null;
    try {
      for await (const piece of answer.body as AsyncIterable<Buffer>) {
        await file.write(piece, 0, piece.byteLength, received.bytes).catch((error: Error) => {
          writeError = error;
          throw error;
        });
        received.hash.update(piece);
        received.bytes += piece.byteLength;
        if (received.bytes > digest.size_bytes) break;
      }
      return true;
    } catch (cause) {
      signal?.throwIfAborted();
      // Not an error of the connection, but for example of a full disk.
      if (writeError !== null) throw cause;
      attempt = received.bytes > startByte ? 0 : attempt + 1;
      if (attempt >= requests.attempts) throw requests.failureOf(cause);
      await requests.pause(attempt, signal);
    }
  }
}
