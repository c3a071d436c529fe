/**
 * Files as objects of an S3 bucket.
 *
 * The key of an object is `<prefix>/<path of the file>/<SHA-256>`, so an object is never overwritten with other bytes: an upload that is
 * repeated, or that another process has abandoned, cannot damage the file that a row references.
 */
import { randomUUID } from "node:crypto";
import { DataCorruptedError } from "../../../base/errors.ts";
import type { FileDigest } from "../../disk/digests.ts";
import type { Remote, RemoteFile } from "../remote.ts";
import { download } from "./download.ts";
import { parseS3Location, type S3Location } from "./location.ts";
import { S3_REQUEST_LIMITS, S3Requests, type RequestLimits } from "./requests.ts";
import { PART_BYTES, upload } from "./upload.ts";
import { elementOf, elementsOf } from "./xml.ts";

/** Key of the object that identifies a storage. */
const MARK_KEY = "whetstone.json";
/** Prefix of the key of the object that {@link S3Bucket.probe} writes and deletes. */
const PROBE_PREFIX = "whetstone-probe-";
/** Files per answer of a list; servers send at most 1000. */
const PAGE_SIZE = 1000;
/** Key of a stored file, without the prefix. */
const FILE_KEY = /^((?:checkpoints|jobs|tokens|artifacts)\/.+)\/([0-9a-f]{64})$/u;

/** Settings of {@link S3Bucket}. */
export interface S3Settings extends RequestLimits {
  /** Bytes of a part; larger files are uploaded in parts. @default 16 MiB */
  readonly partBytes: number;
}

/** Files in an S3 bucket. */
export class S3Bucket implements Remote {
  readonly #location: S3Location;
  readonly #requests: S3Requests;
  readonly #partBytes: number;

  constructor(location: S3Location, { partBytes = PART_BYTES, ...limits }: Partial<S3Settings> = {}) {
    this.#location = location;
    this.#requests = new S3Requests(location, { ...S3_REQUEST_LIMITS, ...limits });
    this.#partBytes = partBytes;
  }

  get url(): string {
    return this.#location.url;
  }

  get secrets(): readonly (string | undefined)[] {
    const { secretAccessKey, sessionToken } = this.#location.credentials;
    return [secretAccessKey, sessionToken];
  }

  async put(path: string, digest: FileDigest, source: string, signal?: AbortSignal): Promise<void> {
    await upload(this.#requests, { key: this.#keyOf(path, digest), source, digest, partBytes: this.#partBytes, signal });
  }

  get(path: string, digest: FileDigest, target: string, signal?: AbortSignal): Promise<boolean> {
    return download(this.#requests, { key: this.#keyOf(path, digest), target, digest, signal });
  }

  async *list(path = "", signal?: AbortSignal, pageSize = PAGE_SIZE): AsyncGenerator<RemoteFile, void> {
    const prefix = this.#prefixed(path === "" ? "" : `${path}/`);
    // Version 1 of the list: every implementation continues it after a key (`marker`), unlike the tokens of version 2.
    for (let marker: string | null = ""; marker !== null;) {
      const startAfter = marker === "" ? {} : { marker };
      const page: string = await this.#bucketText({ prefix, "max-keys": String(pageSize), ...startAfter }, signal);
      const entries = elementsOf(page, "Contents").map((entry) => ({ entry, key: elementOf(entry, "Key") ?? "" }));
      for (const { entry, key } of entries) {
        const [, file, sha256] = FILE_KEY.exec(this.#withoutPrefix(key)) ?? [];
        if (file === undefined || sha256 === undefined) continue;
        const modifiedMs = Date.parse(elementOf(entry, "LastModified") ?? "");
        yield { path: file, digest: { sha256, size_bytes: Number(elementOf(entry, "Size")) }, modifiedMs };
      }
      const isTruncated = elementOf(page, "IsTruncated") === "true";
      marker = isTruncated ? (entries.at(-1)?.key ?? null) : null;
    }
  }

  async remove(path: string, digest: FileDigest, signal?: AbortSignal): Promise<void> {
    await this.#remove(this.#keyOf(path, digest), signal);
  }

  async abandonUploads(beforeMs: number): Promise<number> {
    // Servers without this list keep no parts, or remove them themselves.
    const page = await this.#bucketText({ uploads: "", prefix: this.#prefixed("") }).catch(() => "");
    let count = 0;
    for (const entry of elementsOf(page, "Upload")) {
      const key = elementOf(entry, "Key") ?? "";
      const uploadId = elementOf(entry, "UploadId") ?? "";
      const isOld = Date.parse(elementOf(entry, "Initiated") ?? "") < beforeMs;
      if (!FILE_KEY.test(this.#withoutPrefix(key)) || !isOld) continue;
      await this.#requests.send({ method: "DELETE", key, query: { uploadId } }).then((answer) => answer?.body.dump());
      count++;
    }
    return count;
  }

  async probe(): Promise<void> {
    const key = this.#prefixed(`${PROBE_PREFIX}${randomUUID()}`);
    const body = Buffer.from(key);
    await this.#put(key, body);
    const storedText = await this.#requests.text({ method: "GET", key });
    if (storedText !== key) throw new DataCorruptedError(`The storage ${this.url} returned other bytes than were written to it`);
    await this.#remove(key);
  }

  readMark(): Promise<string | null> {
    return this.#requests.text({ method: "GET", key: this.#prefixed(MARK_KEY) });
  }

  writeMark(text: string): Promise<void> {
    return this.#put(this.#prefixed(MARK_KEY), Buffer.from(text));
  }

  close(): Promise<void> {
    return this.#requests.close();
  }

  /** Writes an object. */
  async #put(key: string, body: Uint8Array): Promise<void> {
    await (await this.#requests.send({ method: "PUT", key, body }))?.body.dump();
  }

  /** Deletes an object, if it exists. */
  async #remove(key: string, signal?: AbortSignal): Promise<void> {
    await (await this.#requests.send({ method: "DELETE", key, signal }))?.body.dump();
  }

  /** Returns the answer of a request for a list of the bucket; empty for a server without this list. */
  async #bucketText(query: Readonly<Record<string, string>>, signal?: AbortSignal): Promise<string> {
    return (await this.#requests.text({ method: "GET", key: "", query, signal })) ?? "";
  }

  /** Returns the key of a file. */
  #keyOf(path: string, { sha256 }: FileDigest): string {
    return this.#prefixed(`${path}/${sha256}`);
  }

  /** Adds the prefix of the location to a key. */
  #prefixed(key: string): string {
    const { prefix } = this.#location;
    return prefix === "" ? key : `${prefix}/${key}`;
  }

  /** Removes the prefix of the location from a key of the bucket. */
  #withoutPrefix(key: string): string {
    return key.slice(this.#prefixed("").length);
  }
}

/**
 * Opens the bucket of a URL, with the credentials from the environment. Sends no request.
 *
 * @throws ConfigError `E_CONFIG` for an invalid URL, and without credentials.
 */
export function openBucket(url: string): S3Bucket {
  return new S3Bucket(parseS3Location(url, process.env));
}
