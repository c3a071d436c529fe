/** Location of an S3 storage: its URL, and the credentials from the environment. */
import { ConfigError } from "../../../base/errors.ts";

/** Region without a setting; also accepted by most servers that have no regions. */
const DEFAULT_REGION = "us-east-1";
/** Prefixes of characters that no client of S3 encodes. */
const PREFIX_PATTERN = /^[\w!.*'()-]+(?:\/[\w!.*'()-]+)*$/u;
/** Names of buckets. */
const BUCKET_PATTERN = /^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$/u;

/** Credentials of an S3 server. */
export interface S3Credentials {
  readonly accessKeyId: string;
  readonly secretAccessKey: string;
  readonly sessionToken: string | undefined;
}

/** Location of an S3 storage. */
export interface S3Location {
  readonly bucket: string;
  /** First part of every key, without slashes at its ends; empty for the whole bucket. */
  readonly prefix: string;
  /** URL of the server, without the bucket and without a slash at its end. */
  readonly endpoint: string;
  readonly region: string;
  readonly credentials: S3Credentials;
  /** The URL with the endpoint and the region in use, without credentials: it selects the same storage in another environment. */
  readonly url: string;
}

/** Environment variables by name. */
type Environment = Readonly<Record<string, string | undefined>>;

/**
 * Parses `s3://bucket/prefix?endpoint=…&region=…`.
 *
 * @param url - URL of the storage. @default endpoint: `AWS_ENDPOINT_URL_S3`, or the one of AWS for the region; region: `AWS_REGION`, or
 *   `us-east-1`
 * @param environment - Variables, among them the credentials `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY` and `AWS_SESSION_TOKEN`.
 * @throws ConfigError `E_CONFIG` for any other URL, for a URL with credentials, and without credentials in the environment.
 */
export function parseS3Location(url: string, environment: Environment): S3Location {
  const parsed = requireStorageUrl(url);
  const prefix = requirePrefix(parsed);
  for (const name of parsed.searchParams.keys())
    if (name !== "endpoint" && name !== "region") throw locationError(`got the parameter '${name}'`);
  const region = firstOf(parsed.searchParams.get("region"), environment["AWS_REGION"], environment["AWS_DEFAULT_REGION"]) ?? DEFAULT_REGION;
  const configuredEndpoint = firstOf(parsed.searchParams.get("endpoint"), environment["AWS_ENDPOINT_URL_S3"]);
  const endpoint = configuredEndpoint === undefined ? `https://s3.${region}.amazonaws.com` : requireEndpoint(configuredEndpoint);
  const query = new URLSearchParams({ ...(configuredEndpoint === undefined ? {} : { endpoint }), region });
  return {
    bucket: parsed.hostname,
    prefix,
    endpoint,
    region,
    credentials: credentialsOf(environment),
    url: `s3://${parsed.hostname}${prefix === "" ? "" : `/${prefix}`}?${String(query)}`,
  };
}

/** Parses the URL of a storage and checks its bucket. @throws ConfigError `E_CONFIG` for any other URL. */
function requireStorageUrl(url: string): URL {
  const parsed = URL.canParse(url) ? new URL(url) : null;
  if (parsed === null || parsed.protocol !== "s3:" || !BUCKET_PATTERN.test(parsed.hostname) || parsed.port !== "" || parsed.hash !== "")
    throw locationError(`got '${withoutCredentials(url)}'`);
  if (parsed.username !== "" || parsed.password !== "")
    throw locationError("got a URL with credentials. Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY instead");
  return parsed;
}

/** Returns the prefix of the keys, without slashes at its ends. @throws ConfigError `E_CONFIG` for other characters and for dots alone. */
function requirePrefix({ pathname }: URL): string {
  const prefix = pathname.replace(/^\/|\/$/gu, "");
  const hasOnlyDots = prefix.split("/").some((part) => /^\.+$/u.test(part));
  if (prefix === "" || (PREFIX_PATTERN.test(prefix) && !hasOnlyDots)) return prefix;
  throw locationError(`got the prefix '${prefix}'. Use letters, digits and the characters ! - _ . * ' ( ) between single slashes`);
}

/** Returns the first value that is set and not empty. */
function firstOf(...values: readonly (string | null | undefined)[]): string | undefined {
  return values.find((value) => value !== null && value !== undefined && value !== "") ?? undefined;
}

/** Returns the URL of a server without slashes at its end. @throws ConfigError `E_CONFIG` for any other text. */
function requireEndpoint(text: string): string {
  const parsed = URL.canParse(text) ? new URL(text) : null;
  if (parsed !== null && /^https?:$/u.test(parsed.protocol) && parsed.username === "" && parsed.search === "" && parsed.hash === "")
    return parsed.href.replace(/\/+$/u, "");
  throw locationError(`got the endpoint '${withoutCredentials(text)}'. Use the URL of the server, such as https://minio.example.org:9000`);
}

/** Reads the credentials. @throws ConfigError `E_CONFIG` without an access key. */
function credentialsOf(environment: Environment): S3Credentials {
  const accessKeyId = firstOf(environment["AWS_ACCESS_KEY_ID"]);
  const secretAccessKey = firstOf(environment["AWS_SECRET_ACCESS_KEY"]);
  const sessionToken = firstOf(environment["AWS_SESSION_TOKEN"]);
  if (accessKeyId !== undefined && secretAccessKey !== undefined) return { accessKeyId, secretAccessKey, sessionToken };
  throw new ConfigError(
    `Expected the credentials of the storage in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, and for temporary ones in AWS_SESSION_TOKEN; ${accessKeyId === undefined ? "AWS_ACCESS_KEY_ID" : "AWS_SECRET_ACCESS_KEY"} is not set`,
    { param: "storage" },
  );
}

/** Returns a URL for an error message, shortened. */
function withoutCredentials(url: string): string {
  return url.replace(/\/\/[^/@]*@/u, "//…@").slice(0, 200);
}

/** Returns the error of an invalid URL; `got` describes the problem. */
function locationError(got: string): ConfigError {
  return new ConfigError(
    `Expected the storage to be 's3://<bucket>/<prefix>', optionally with '?endpoint=<URL of the server>&region=<name>', ${got}`,
    { param: "storage" },
  );
}
