/** Signed requests to an S3 server, with timeouts and retries. */
import { createHash } from "node:crypto";
import { AwsV4Signer } from "aws4fetch";
import { Agent, request, type Dispatcher } from "undici";
import { backoffMs } from "../../../base/util/backoff.ts";
import { delay } from "../../../base/util/delay.ts";
import { isRetryable, isRetryableStatus } from "../../../base/util/retryable.ts";
import { messageOf } from "../../../base/util/values.ts";
import { StorageError } from "../errors.ts";
import type { S3Location } from "./location.ts";
import { elementOf } from "./xml.ts";

/** SHA-256 of an empty body. */
const EMPTY_SHA256 = createHash("sha256").digest("hex");
/** Error codes of transient failures, which S3 may send with a status that is otherwise permanent. */
const TRANSIENT_CODES = ["RequestTimeout", "SlowDown", "InternalError", "OperationAborted", "ServiceUnavailable"];
/** Max bytes of an answer that is read as text: a page of a list is below 1 MB. */
const MAX_TEXT_BYTES = 16 * 1024 * 1024;

/** Timeouts and number of attempts. */
export interface RequestLimits {
  /** Attempts per request. @default 5 */
  readonly attempts: number;
  /** Milliseconds before the first repetition, doubled for each further one, up to 8 s. @default 250 */
  readonly backoffMs: number;
  /** Milliseconds to connect. @default 10 000 */
  readonly connectMs: number;
  /** Milliseconds without a byte of the answer after which a request fails. @default 30 000 */
  readonly silenceMs: number;
}

/** Default limits. */
export const S3_REQUEST_LIMITS: RequestLimits = { attempts: 5, backoffMs: 250, connectMs: 10_000, silenceMs: 30_000 };

/** Request to an S3 server. */
export interface S3Request {
  readonly method: "GET" | "PUT" | "POST" | "DELETE";
  /** Key of the object; empty for the bucket. */
  readonly key: string;
  readonly query?: Readonly<Record<string, string>> | undefined;
  readonly headers?: Readonly<Record<string, string>> | undefined;
  readonly body?: Uint8Array | undefined;
  /** SHA-256 of the body, hexadecimal. The server rejects a body that differs. @default computed */
  readonly sha256?: string | undefined;
  readonly signal?: AbortSignal | undefined;
}

/** Answer of an S3 server. */
export interface S3Answer {
  readonly status: number;
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  /** Body of an answer with a status below 300; read it, or destroy it. */
  readonly body: Dispatcher.ResponseData["body"];
}

/** Client of a bucket: signs, sends and repeats requests. */
export class S3Requests {
  readonly #location: S3Location;
  readonly #limits: RequestLimits;
  readonly #agent: Agent;

  constructor(location: S3Location, limits: RequestLimits) {
    this.#location = location;
    this.#limits = limits;
    this.#agent = new Agent({
      connect: { timeout: limits.connectMs },
      headersTimeout: limits.silenceMs,
      bodyTimeout: limits.silenceMs,
      connections: 32,
    });
  }

  /** Max attempts of a download that makes no progress. */
  get attempts(): number {
    return this.#limits.attempts;
  }

  /**
   * Sends a request. Repeats it after a failed connection, a timeout and a transient status.
   *
   * @returns the answer; null if the object does not exist.
   * @throws StorageError `E_UNAVAILABLE` after the last attempt, and for a status that a repetition cannot change.
   * @throws the signal's reason.
   */
  async send(s3Request: S3Request): Promise<S3Answer | null> {
    for (let attempt = 0; ; attempt++) {
      s3Request.signal?.throwIfAborted();
      let failure: StorageError;
      let isTransient: boolean;
      try {
        const answer = await this.#sendOnce(s3Request);
        if (answer.status < 300) return answer;
        const text = await answer.body.text().catch(() => "");
        const code = elementOf(text, "Code") ?? "";
        if (answer.status === 404 && code !== "NoSuchBucket") return null;
        failure = this.#refusalOf(s3Request, answer.status, code, elementOf(text, "Message") ?? "");
        isTransient = isRetryableStatus(answer.status) || TRANSIENT_CODES.includes(code);
      } catch (cause) {
        s3Request.signal?.throwIfAborted();
        failure = this.failureOf(cause);
        isTransient = isRetryable(cause);
      }
      if (!isTransient || attempt + 1 >= this.#limits.attempts) throw failure;
      await this.pause(attempt, s3Request.signal);
    }
  }

  /** Sends a request and returns the text of the answer; null if the object does not exist. */
  async text(s3Request: S3Request): Promise<string | null> {
    for (let attempt = 0; ; attempt++) {
      const answer = await this.send(s3Request);
      if (answer === null) return null;
      try {
        return await textOf(answer);
      } catch (cause) {
        s3Request.signal?.throwIfAborted();
        if (attempt + 1 >= this.#limits.attempts) throw this.failureOf(cause);
        await this.pause(attempt, s3Request.signal);
      }
    }
  }

  /** Waits before a repetition. `attempt` counts the earlier failures from 0. */
  pause(attempt: number, signal?: AbortSignal): Promise<void> {
    return delay(backoffMs(attempt, { baseMs: this.#limits.backoffMs }), { signal });
  }

  /** Returns the error for a request without an answer. */
  failureOf(cause: unknown): StorageError {
    return new StorageError(`The storage ${this.#name} cannot be reached: ${messageOf(cause)}. Repeat the request`, { cause });
  }

  close(): Promise<void> {
    return this.#agent.destroy();
  }

  /** Bucket and server, for error messages. */
  get #name(): string {
    return `s3://${this.#location.bucket} at ${this.#location.endpoint}`;
  }

  /** Signs and sends a request. */
  async #sendOnce({ method, key, query = {}, headers = {}, body, sha256, signal }: S3Request): Promise<S3Answer> {
    const { bucket, endpoint, region, credentials } = this.#location;
    const path = [bucket, ...(key === "" ? [] : key.split("/"))].map(encodeURIComponent).join("/");
    const url = new URL(`${endpoint}/${path}`);
    for (const [name, value] of Object.entries(query)) url.searchParams.set(name, value);
    const digest = body === undefined ? EMPTY_SHA256 : (sha256 ?? createHash("sha256").update(body).digest("hex"));
    const signer = new AwsV4Signer({
      method,
      url: url.href,
      headers: { ...headers, "x-amz-content-sha256": digest },
      service: "s3",
      region,
      accessKeyId: credentials.accessKeyId,
      secretAccessKey: credentials.secretAccessKey,
      ...(credentials.sessionToken === undefined ? {} : { sessionToken: credentials.sessionToken }),
    });
    const signed = await signer.sign();
    const { statusCode, ...answer } = await request(signed.url, {
      method,
      headers: Object.fromEntries(signed.headers),
      body: body ?? null,
      dispatcher: this.#agent,
      signal: signal ?? null,
    });
    return { status: statusCode, headers: answer.headers, body: answer.body };
  }

  /** Returns the error for an answer with a status of 300 or more. */
  #refusalOf({ method }: S3Request, status: number, code: string, message: string): StorageError {
    const reason = [code, message].filter((text) => text !== "").join(": ") || "no reason given";
    return new StorageError(`The storage ${this.#name} answered ${method} with ${status} (${reason})`, { status });
  }
}

/** Reads the body of an answer as text. */
async function textOf({ body }: S3Answer): Promise<string> {
  const pieces: Buffer[] = [];
  let size = 0;
  for await (const piece of body as AsyncIterable<Buffer>) {
    size += piece.byteLength;
    if (size > MAX_TEXT_BYTES) throw new Error(`expected an answer of at most ${MAX_TEXT_BYTES} bytes`);
    pieces.push(piece);
  }
  return Buffer.concat(pieces).toString("utf8");
}
