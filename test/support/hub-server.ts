/** A model hub on this machine: the routes that the hub's own client asks for a model's files. */
import { createHash } from "node:crypto";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { onTestFinished } from "vitest";

/** A repository: files by path. */
export interface HubRepository {
  readonly files: Readonly<Record<string, Uint8Array | string>>;
  /** Asks for this token. */
  readonly token?: string;
  /** Listed with its SHA-256, as large files are. */
  readonly large?: readonly string[];
}

export interface HubServer {
  readonly url: string;
  /** `GET /path` of every request so far. */
  readonly requests: string[];
  /** By `owner/name`; may be changed at any time. */
  readonly repositories: Record<string, HubRepository>;
  /** Files of which fewer bytes come than are listed. */
  readonly cut: Set<string>;
  /** Files that come with other bytes than their digest says. */
  readonly wrong: Set<string>;
}

/** Commit of a repository, a digest of its files. */
export function commitOf({ files }: HubRepository): string {
  const hash = createHash("sha1");
  for (const [path, content] of Object.entries(files)) hash.update(path).update(content);
  return hash.digest("hex");
}

/** Starts a hub that ends with the test. */
export async function startHubServer(repositories: Record<string, HubRepository>): Promise<HubServer> {
  const hub = { requests: [] as string[], repositories, cut: new Set<string>(), wrong: new Set<string>() };
  const http = createServer((request, response) => answer(hub, request, response));
  await new Promise<void>((resolve) => http.listen(0, "127.0.0.1", resolve));
  onTestFinished(() => {
    http.closeAllConnections();
    http.close();
  });
  return Object.assign(hub, { url: `http://127.0.0.1:${(http.address() as AddressInfo).port}` });
}

function answer(hub: Omit<HubServer, "url">, request: IncomingMessage, response: ServerResponse): void {
  const { pathname } = new URL(request.url ?? "/", "http://hub");
  hub.requests.push(`${request.method} ${pathname}`);
  const json = (status: number, body: unknown, headers: Record<string, string> = {}) =>
    response.writeHead(status, { "content-type": "application/json", ...headers }).end(JSON.stringify(body));
  const info = /^\/api\/models\/([^/]+\/[^/]+)\/revision\/([^/]+)$/u.exec(pathname);
  const tree = /^\/api\/models\/([^/]+\/[^/]+)\/tree\/([^/]+)$/u.exec(pathname);
  const resolve = /^\/([^/]+\/[^/]+)\/resolve\/([^/]+)\/(.+)$/u.exec(pathname);
  const [, name = "", revision = "", path = ""] = info ?? tree ?? resolve ?? [];
  const repository = hub.repositories[name];
  const commit = repository === undefined ? "" : commitOf(repository);
  if (repository === undefined || !["main", "v1", commit].includes(decodeURIComponent(revision))) {
    return void json(404, { error: "Repository not found" }, { "x-error-code": "RepoNotFound" });
  }
  if (repository.token !== undefined && request.headers.authorization !== `Bearer ${repository.token}`) {
    return void json(401, { error: "Access to this model is restricted" }, { "x-error-code": "GatedRepo" });
  }
  if (path !== "") return sendFile(hub, repository, path, request, response);
  if (info !== null) return void json(200, { _id: "1", id: name, sha: commit, lastModified: "2026-01-01T00:00:00.000Z", private: false });
  const entries = Object.entries(repository.files).map(([each, content]) => ({
    type: "file",
    path: each,
    size: Buffer.byteLength(content),
    oid: commit,
    ...(repository.large?.includes(each)
      ? { lfs: { oid: createHash("sha256").update(content).digest("hex"), size: Buffer.byteLength(content), pointerSize: 130 } }
      : {}),
  }));
  json(200, entries);
}

function sendFile(
  hub: Pick<HubServer, "cut" | "wrong">,
  { files }: HubRepository,
  path: string,
  request: IncomingMessage,
  response: ServerResponse,
): void {
  const content = files[path];
  if (content === undefined) return void response.writeHead(404, { "x-error-code": "EntryNotFound" }).end();
  const bytes = hub.wrong.has(path) ? Buffer.from(content).reverse() : Buffer.from(content);
  const [, start, end] = /^bytes=(\d+)-(\d*)$/u.exec(request.headers.range ?? "") ?? [];
  const headers = { "content-type": "application/octet-stream", etag: `"${createHash("sha1").update(bytes).digest("hex")}"` };
  if (start === undefined) {
    const sent = hub.cut.has(path) ? bytes.subarray(0, bytes.length >> 1) : bytes;
    return void response.writeHead(200, { ...headers, "content-length": String(sent.length) }).end(sent);
  }
  const last = end === "" || end === undefined ? bytes.length - 1 : Math.min(Number(end), bytes.length - 1);
  response.writeHead(206, {
    ...headers,
    "content-range": `bytes ${start}-${last}/${bytes.length}`,
    "content-length": String(last - Number(start) + 1),
  });
  response.end(bytes.subarray(Number(start), last + 1));
}
