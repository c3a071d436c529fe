/** Upload of a file with bounded memory: in one request, or in parts. */
import { createHash } from "node:crypto";
import { open, type FileHandle } from "node:fs/promises";
import PQueue from "p-queue";
import { DataCorruptedError } from "../../../base/errors.ts";
import type { FileDigest } from "../../disk/digests.ts";
import { closing } from "../../disk/files.ts";
import type { S3Requests } from "./requests.ts";
import { StorageError } from "../errors.ts";
import { elementOf } from "./xml.ts";

/** Bytes of a part; the protocol requires at least 5 MiB. */
export const PART_BYTES = 16 * 1024 * 1024;
/** Max number of parts that the protocol allows. */
const MAX_PARTS = 10_000;
/** Max parts in memory at one time. */
const PARTS_AT_ONCE = 4;

/** File to upload, and the object that it becomes. */
interface Upload {
  readonly key: string;
  /** Path of the file. */
  readonly source: string;
  readonly digest: FileDigest;
  readonly partBytes: number;
  readonly signal?: AbortSignal | undefined;
}

/**
 * Uploads a file. The object exists only after success, with the bytes of the digest: the server compares every body with its SHA-256.
 *
 * @throws DataCorruptedError `E_DATA_CORRUPTED` for a file that differs from its digest.
 * @throws StorageError `E_UNAVAILABLE` if the storage does not accept it.
 */
export async function upload(requests: S3Requests, uploaded: Upload): Promise<void> {
  await closing(await open(uploaded.source, "r"), async (file) => {
    if (uploaded.digest.size_bytes <= uploaded.partBytes) await putWhole(requests, file, uploaded);
    else await putParts(requests, file, uploaded);
  });
}

/** Uploads a file in one request. */
async function putWhole(requests: S3Requests, file: FileHandle, { key, source, digest, signal }: Upload): Promise<void> {
  // One byte more than expected, so that a longer file differs from its digest.
  const body = await readPart(file, 0, digest.size_bytes + 1);
  const sha256 = createHash("sha256").update(body).digest("hex");
  if (sha256 !== digest.sha256) throw differsError(source);
  const answer = await requests.send({ method: "PUT", key, body, sha256, signal });
  await answer?.body.dump();
}

/** Uploads a file in parts. After an error, the parts are removed. */
async function putParts(requests: S3Requests, file: FileHandle, uploaded: Upload): Promise<void> {
  const { key, signal } = uploaded;
  const begun = await requests.text({ method: "POST", key, query: { uploads: "" }, signal });
  const uploadId = elementOf(begun ?? "", "UploadId");
  if (uploadId === null) throw new StorageError("The storage did not begin an upload in parts: its answer has no UploadId");
  try {
    const tags = await sendParts(requests, file, { ...uploaded, uploadId });
    const parts = tags.map((tag, index) => `<Part><PartNumber>${index + 1}</PartNumber><ETag>${tag}</ETag></Part>`);
    const body = Buffer.from(`<CompleteMultipartUpload>${parts.join("")}</CompleteMultipartUpload>`);
    const answer = await requests.text({ method: "POST", key, query: { uploadId }, body, signal });
    // An upload that no longer exists was completed by an earlier attempt, the answer of which was lost, if the object exists.
    if (answer === null && (await exists(requests, key))) return;
    // A failure after the headers were sent has the status 200.
    const code = answer === null ? "NoSuchUpload" : elementOf(answer, "Code");
    if (code !== null) throw new StorageError(`The storage did not complete an upload in parts: ${code}`);
  } catch (error) {
    await requests.send({ method: "DELETE", key, query: { uploadId } }).then(
      (answer) => answer?.body.dump(),
      () => undefined,
    );
    throw error;
  }
}

/** Whether an object exists, by a request for its first byte. */
async function exists(requests: S3Requests, key: string): Promise<boolean> {
  const answer = await requests.send({ method: "GET", key, headers: { range: "bytes=0-0" } });
  await answer?.body.dump();
  return answer !== null;
}

/** Sends the parts of a file, several at the same time. @returns their tags, escaped for XML. */
async function sendParts(requests: S3Requests, file: FileHandle, uploaded: Upload & { readonly uploadId: string }): Promise<string[]> {
  const { key, source, digest, uploadId } = uploaded;
  const partBytes = Math.max(uploaded.partBytes, Math.ceil(digest.size_bytes / MAX_PARTS));
  const firstFailure = new AbortController();
  const signal = uploaded.signal === undefined ? firstFailure.signal : AbortSignal.any([uploaded.signal, firstFailure.signal]);
  const queue = new PQueue({ concurrency: PARTS_AT_ONCE });
  const tags: string[] = [];
  const fileHash = createHash("sha256");
  const send = async (index: number, body: Buffer) => {
    const answer = await requests.send({ method: "PUT", key, query: { partNumber: String(index + 1), uploadId }, body, signal });
    await answer?.body.dump();
    const tag = answer?.headers["etag"];
    if (typeof tag !== "string") throw new StorageError("The storage accepted a part of an upload without an ETag");
    tags[index] = tag.replaceAll('"', "&quot;");
  };
  const partUploads: Promise<void>[] = [];
  for (let position = 0, index = 0; position < digest.size_bytes; position += partBytes, index++) {
    // Waits until no read part is queued, which bounds the parts in memory.
    await queue.onSizeLessThan(1);
    if (signal.aborted) break;
    const body = await readPart(file, position, Math.min(partBytes, digest.size_bytes - position));
    fileHash.update(body);
    partUploads.push(queue.add(() => send(index, body)));
    partUploads.at(-1)?.catch((error: unknown) => firstFailure.abort(error));
  }
  await Promise.allSettled(partUploads);
  signal.throwIfAborted();
  if (fileHash.digest("hex") !== digest.sha256) throw differsError(source);
  return tags;
}

/** Reads at most `length` bytes; fewer at the end of the file. */
async function readPart(file: FileHandle, position: number, length: number): Promise<Buffer> {
  const buffer = Buffer.allocUnsafe(length);
  let size = 0;
  while (size < length) {
    const { bytesRead } = await file.read(buffer, size, length - size, position + size);
    if (bytesRead === 0) break;
    size += bytesRead;
  }
  return buffer.subarray(0, size);
}

/** Returns the error of a file that differs from its digest. */
function differsError(source: string): DataCorruptedError {
  return new DataCorruptedError(`A file changed before it was stored: the bytes of '${source}' differ from its digest. Repeat the request`);
}
