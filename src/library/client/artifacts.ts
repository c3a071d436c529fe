/** The `artifacts` resource of the client: versioned sets of files that are uploaded, committed and downloaded. */
import { randomUUID } from "node:crypto";
import {
  artifactFile,
  artifactList,
  artifactPath,
  artifactSummary,
  artifactVersion,
  createArtifactRequest,
  deleteArtifactResponse,
  type ArtifactFile as WireArtifactFile,
  type ArtifactVersion as WireArtifactVersion,
  type JsonObject,
} from "../../base/schema/index.ts";
import { ArgumentError } from "../../base/errors.ts";
import { callCreate, callJson, LONG_CALL_MS, type Api, type CallOptions, type CreateOptions } from "./api.ts";
import { parseResponse } from "./options.ts";
import { allPages, type ListOptions } from "./pages.ts";
import { fromWire, parseFields, toWire } from "./wire.ts";

/** A file of an artifact version. */
export interface ArtifactFileInfo extends Readonly<Pick<WireArtifactFile, "path" | "sha256">> {
  /** Size of the file in bytes. */
  readonly sizeBytes: number;
}

/** Name, address and state of an artifact version. */
export interface ArtifactFacts extends Readonly<
  Pick<WireArtifactVersion, "id" | "entity" | "project" | "name" | "version" | "state" | "url">
> {
  /** Metadata given at the creation. */
  readonly metadata: Readonly<Record<string, unknown>>;
  /** Creation time, ISO 8601. */
  readonly createdAt: string;
}

/** A version of an artifact: an `open` version accepts files, a `committed` version is immutable and usable. */
export interface ArtifactVersion extends ArtifactFacts {
  /** Stored files, sorted by path. */
  readonly files: readonly ArtifactFileInfo[];
}

/** A version of an artifact without its file list: an entry of `artifacts.list`. */
export interface ArtifactSummary extends ArtifactFacts {
  /** Number of files. */
  readonly fileCount: number;
  /** Total size of the files in bytes. Versions with equal files share their contents on disk. */
  readonly bytes: number;
}

/** Name, owner and metadata of the version that `artifacts.create` opens. */
export interface CreateArtifactOptions extends CreateOptions {
  /** Project where the artifact is stored. */
  readonly project: string;
  /** Name within the project; every creation under the same name opens the next version. */
  readonly name: string;
  /** Owner of the artifact. @default the key's entity */
  readonly entity?: string | undefined;
  /** Arbitrary metadata about the contents. @default {} */
  readonly metadata?: JsonObject | undefined;
}

/** Filters and number of the versions that `artifacts.list` returns. */
export interface ListArtifactsOptions extends ListOptions {
  /** Only artifacts of this entity. @default all */
  readonly entity?: string | undefined;
  /** Only artifacts of this project. @default all */
  readonly project?: string | undefined;
  /** Only versions of the artifact with this name. @default all */
  readonly name?: string | undefined;
  /** Only versions in this state. @default both */
  readonly state?: "open" | "committed" | undefined;
}

/** Contents of a file. A function is called once per attempt and returns the contents from the start. */
export type FileBody = Uint8Array | string | (() => AsyncIterable<Uint8Array>);

/**
 * The `artifacts` resource (an extension): versioned, immutable sets of files.
 *
 * @example
 * ```ts
 * const { id } = await service.artifacts.create({ project: "demo", name: "examples" });
 * await service.artifacts.putFile(id, "train.jsonl", '{"messages":[]}\n');
 * const { url } = await service.artifacts.commit(id);
 * const versions = await service.artifacts.list({ project: "demo", name: "examples" });
 * const { files } = await service.artifacts.get(id);
 * const bytes = await service.artifacts.readFile(id, "train.jsonl");
 * await service.artifacts.delete(id);
 * ```
 */
export interface Artifacts {
  /**
   * Opens the next version of `entity/project/name` for uploads.
   *
   * @param options - Name, owner, metadata, signal, time limit and idempotency key.
   * @returns the open version without files.
   * @throws HttpError `E_HTTP` for an error status.
   * @throws ConnectionError `E_CONNECTION` without a complete response; ProtocolError `E_PROTOCOL` for an invalid response.
   */
  create(options: CreateArtifactOptions): Promise<ArtifactVersion>;
  /**
   * Uploads one file into an open version, replacing a file of the same path.
   *
   * @param artifactId - ID of the version.
   * @param path - Relative path with `/` inside the artifact.
   * @param body - Contents of the file.
   * @param options - Signal and time limit.
   * @throws ArgumentError `E_ARGUMENT` if `path` is not a relative path inside the artifact.
   * @throws HttpError `E_HTTP` for an error status, 409 for a committed version; ConnectionError `E_CONNECTION` without a response.
   */
  putFile(artifactId: string, path: string, body: FileBody, options?: CallOptions): Promise<void>;
  /**
   * Commits a version, which makes it immutable and usable.
   *
   * @param artifactId - ID of the version.
   * @param options - Signal and time limit.
   * @returns the committed version with its files.
   * @throws HttpError `E_HTTP` for an error status.
   * @throws ConnectionError `E_CONNECTION` without a complete response; ProtocolError `E_PROTOCOL` for an invalid response.
   */
  commit(artifactId: string, options?: CallOptions): Promise<ArtifactVersion>;
  /**
   * Lists versions, fetching all pages.
   *
   * @param options - Filters, number, signal and time limit.
   * @returns the versions without their file lists, newest first.
   * @throws HttpError `E_HTTP` for an error status, 404 or 405 if the service lacks this extension.
   * @throws ConnectionError `E_CONNECTION` without a complete response; ProtocolError `E_PROTOCOL` for an invalid response.
   */
  list(options?: ListArtifactsOptions): Promise<ArtifactSummary[]>;
  /**
   * Returns a version with its file list.
   *
   * @param artifactId - ID of the version.
   * @param options - Signal and time limit.
   * @returns the version, open or committed.
   * @throws HttpError `E_HTTP` for an error status.
   * @throws ConnectionError `E_CONNECTION` without a complete response; ProtocolError `E_PROTOCOL` for an invalid response.
   */
  get(artifactId: string, options?: CallOptions): Promise<ArtifactVersion>;
  /**
   * Downloads one file of a version.
   *
   * @param artifactId - ID of the version.
   * @param path - Relative path with `/` inside the artifact.
   * @param options - Signal and time limit.
   * @returns the bytes of the file.
   * @throws ArgumentError `E_ARGUMENT` if `path` is not a relative path inside the artifact.
   * @throws HttpError `E_HTTP` for an error status; ConnectionError `E_CONNECTION` without a complete response.
   */
  readFile(artifactId: string, path: string, options?: CallOptions): Promise<Uint8Array>;
  /**
   * Deletes a version with its files. The version number is not reused.
   *
   * @param artifactId - ID of the version.
   * @param options - Signal and time limit.
   * @throws HttpError `E_HTTP` for an error status, 409 while an unfinished job reads the version.
   * @throws ConnectionError `E_CONNECTION` without a complete response; ProtocolError `E_PROTOCOL` for an invalid response.
   */
  delete(artifactId: string, options?: CallOptions): Promise<void>;
}

/** Creates the `artifacts` resource of a connection. */
export function artifactsResource(api: Api): Artifacts {
  const versionRoute = (artifactId: string) => `/v1/preview/artifacts/${encodeURIComponent(artifactId)}`;
  /** Returns the route of a file. @throws ArgumentError `E_ARGUMENT` if `path` is not a relative path inside the artifact. */
  const fileRoute = (artifactId: string, path: string) => {
    const result = artifactPath.safeParse(path);
    if (!result.success) throw new ArgumentError(`Path \`${path}\` ${result.error.issues[0]?.message ?? "is invalid"}`, { param: "path" });
    return `${versionRoute(artifactId)}/files/${path.split("/").map(encodeURIComponent).join("/")}`;
  };
  const toVersion = (answer: unknown): ArtifactVersion => {
    const { files, ...facts } = parseFields(artifactVersion, answer, "artifact version");
    return { ...facts, files: files.map((each) => fromWire(artifactFile, each)) };
  };
  return {
    create: async ({ project, name, entity, metadata, idempotencyKey = randomUUID(), ...options }) => {
      const json = toWire(createArtifactRequest, { project, name, entity, metadata });
      // Safe to repeat: at worst, a second version stays open and empty, which nothing can use.
      return toVersion(await callCreate(api, "/v1/preview/artifacts", { ...options, json, idempotencyKey, isRepeatable: true }));
    },
    putFile: async (artifactId, path, body, options = {}) => {
      const headers = { "content-type": "application/octet-stream" };
      await callJson(api, "PUT", fileRoute(artifactId, path), { ...options, body, headers, headersTimeoutMs: LONG_CALL_MS });
    },
    commit: async (artifactId, options = {}) => {
      const request = { ...options, retry: "idempotent", headersTimeoutMs: LONG_CALL_MS } as const;
      return toVersion(await callJson(api, "POST", `${versionRoute(artifactId)}/commit`, request));
    },
    async list({ entity, project, name, state, ...options } = {}) {
      const list = { schema: artifactList, query: { entity, project, name, state }, itemsName: "artifacts" };
      return (await allPages(api, "/v1/preview/artifacts", list, options)).map((each) => fromWire(artifactSummary, each));
    },
    get: async (artifactId, options = {}) => toVersion(await callJson(api, "GET", versionRoute(artifactId), options)),
    delete: async (artifactId, options = {}) => {
      const answer = await callJson(api, "DELETE", versionRoute(artifactId), options);
      parseResponse(deleteArtifactResponse, answer, "answer to the deletion of an artifact version");
    },
    readFile: (artifactId, path, options = {}) =>
      api.transport.bytes("GET", api.baseUrl + fileRoute(artifactId, path), { ...options, headers: { accept: "*/*" } }),
  };
}
