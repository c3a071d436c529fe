/** An S3 server for tests: s3rver in this process, or the server of `WHETSTONE_TEST_S3`. */
import { randomUUID } from "node:crypto";
import { mkdtemp, rm } from "node:fs/promises";
import type { Server } from "node:http";
import { createRequire } from "node:module";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { onTestFinished } from "vitest";

/** Bucket of the tests. */
export const BUCKET = "whetstone-test";

const PACKAGE = "@20minutes/s3rver";
/** URL of another server, `s3://<bucket>?endpoint=…`, with its credentials in the usual variables. */
const OTHER = process.env["WHETSTONE_TEST_S3"];

interface S3rver {
  run(): Promise<void>;
  close(): Promise<void>;
  readonly httpServer: Server;
}

type S3rverClass = new (options: Readonly<Record<string, unknown>>) => S3rver;

const S3rver = load();

function load(): S3rverClass | null {
  try {
    return createRequire(import.meta.url)(PACKAGE) as S3rverClass;
  } catch {
    return null;
  }
}

/** Reason to skip the tests with an S3 server; null if there is one. */
export const whyNoS3 = OTHER !== undefined || S3rver !== null ? null : `${PACKAGE} is not installed`;

/** Running server. */
export interface S3Server {
  /** Address of the server, such as `http://127.0.0.1:9000`. */
  readonly endpoint: string;
  readonly bucket: string;
  /** Variables with the credentials. */
  readonly environment: Readonly<Record<string, string>>;
  /** Returns the URL of a storage with a prefix of its own; `endpoint` replaces the one of the server. */
  readonly newUrl: (endpoint?: string) => string;
}

const CREDENTIALS = { AWS_ACCESS_KEY_ID: "S3RVER", AWS_SECRET_ACCESS_KEY: "S3RVER" };

/** Starts a server with an empty bucket, which ends with the test, and sets its credentials in the environment. */
export async function startS3(): Promise<S3Server> {
  const { close, ...server } = await launchS3();
  onTestFinished(close);
  return server;
}

/** Starts a server as {@link startS3}; `close` ends it. */
export async function launchS3(): Promise<S3Server & { readonly close: () => Promise<void> }> {
  if (OTHER !== undefined) {
    const url = new URL(OTHER);
    const names = ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_REGION"];
    const environment = Object.fromEntries(names.flatMap((name) => (process.env[name] === undefined ? [] : [[name, process.env[name]]])));
    return { ...serverAt(url.searchParams.get("endpoint") ?? "", url.hostname, environment), close: () => Promise.resolve() };
  }
  if (S3rver === null) throw new Error(whyNoS3 ?? "");
  const directory = await mkdtemp(join(tmpdir(), "whetstone-s3-"));
  const running = new S3rver({ port: 0, address: "127.0.0.1", silent: true, directory, configureBuckets: [{ name: BUCKET }] });
  await running.run();
  const before = Object.keys(CREDENTIALS).map((name) => [name, process.env[name]] as const);
  Object.assign(process.env, CREDENTIALS);
  const close = async () => {
    for (const [name, value] of before) {
      if (value === undefined) delete process.env[name];
      else process.env[name] = value;
    }
    running.httpServer.closeAllConnections();
    await running.close();
    await rm(directory, { recursive: true, force: true });
  };
  return { ...serverAt(`http://127.0.0.1:${(running.httpServer.address() as AddressInfo).port}`, BUCKET, CREDENTIALS), close };
}

function serverAt(endpoint: string, bucket: string, environment: Readonly<Record<string, string>>): S3Server {
  return {
    endpoint,
    bucket,
    environment,
    newUrl: (other = endpoint) => `s3://${bucket}/tests/${randomUUID()}?endpoint=${encodeURIComponent(other)}`,
  };
}
