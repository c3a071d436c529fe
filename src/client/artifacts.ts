import { randomUUID } from "node:crypto";
import { artifactPath, artifactVersion, deleteArtifactResponse, type JsonObject } from "../schema/index.ts";
import { ArgumentError } from "../errors.ts";
import { callCreate, callJson, LONG_CALL_MS, type Api, type CallOptions, type CreateOptions } from "./api.ts";
import type { RequestOptions } from "./transport.ts";
import { artifactFromWire, parseAnswer, type ArtifactVersion } from "./wire.ts";

/** Options of `artifacts.create`. */
export interface CreateArtifactOptions extends CreateOptions {
  readonly project: string;
  readonly name: string;
  /** Owner of the artifact. @default the key's entity */
  readonly entity?: string | undefined;
  /** Arbitrary metadata about the contents. @default {} */
  readonly metadata?: JsonObject | undefined;
}

/** Contents of a file. A function is called once per attempt and returns the contents from the start. */
export type FileBody = Exclude<RequestOptions["body"], undefined>;

/** The `artifacts` resource (an extension): versioned, immutable sets of files. */
export interface Artifacts {
  /** Opens the next version of `entity/project/name` for uploads. */
  create(options: CreateArtifactOptions): Promise<ArtifactVersion>;
  /**
   * Uploads one file into an open version, replacing a file of the same path.
   *
   * @throws ArgumentError `E_ARGUMENT` if `path` is not a relative path inside the artifact.
   */
  putFile(artifactId: string, path: string, body: FileBody, options?: CallOptions): Promise<void>;
  /** Commits a version, which makes it immutable and usable. */
  commit(artifactId: string, options?: CallOptions): Promise<ArtifactVersion>;
  /** Returns a version with its file list. */
  get(artifactId: string, options?: CallOptions): Promise<ArtifactVersion>;
  /**
   * Downloads one file.
   *
   * @throws ArgumentError `E_ARGUMENT` if `path` is not a relative path inside the artifact.
   */
  readFile(artifactId: string, path: string, options?: CallOptions): Promise<Uint8Array>;
  /**
   * Deletes a version with its files. The version number is not reused.
   *
   * @throws HttpError with status 409 while an unfinished job reads the version.
   */
  delete(artifactId: string, options?: CallOptions): Promise<void>;
}

export function artifactsResource(api: Api): Artifacts {
  const root = (artifactId: string) => `/v1/preview/artifacts/${encodeURIComponent(artifactId)}`;
  const file = (artifactId: string, path: string) => {
    const result = artifactPath.safeParse(path);
    if (!result.success) throw new ArgumentError(`Path \`${path}\` ${result.error.issues[0]?.message ?? "is invalid"}`, { param: "path" });
    return `${root(artifactId)}/files/${path.split("/").map(encodeURIComponent).join("/")}`;
  };
  const version = (answer: unknown) => artifactFromWire(parseAnswer(artifactVersion, answer, "artifact version"));
  return {
    create: async ({ project, name, entity, metadata, idempotencyKey = randomUUID(), ...options }) => {
      const body = { project, name, ...(entity === undefined ? {} : { entity }), ...(metadata === undefined ? {} : { metadata }) };
      // A repeated request creates at worst an empty open version, which cannot be used.
      return version(await callCreate(api, "/v1/preview/artifacts", { ...options, json: body, idempotencyKey }, true));
    },
    putFile: async (artifactId, path, body, options = {}) => {
      const headers = { "content-type": "application/octet-stream" };
      await callJson(api, "PUT", file(artifactId, path), { ...options, body, headers, headersTimeoutMs: LONG_CALL_MS });
    },
    commit: async (artifactId, options = {}) =>
      version(
        await callJson(api, "POST", `${root(artifactId)}/commit`, { ...options, retry: "idempotent", headersTimeoutMs: LONG_CALL_MS }),
      ),
    get: async (artifactId, options = {}) => version(await callJson(api, "GET", root(artifactId), options)),
    delete: async (artifactId, options = {}) => {
      parseAnswer(
        deleteArtifactResponse,
        await callJson(api, "DELETE", root(artifactId), options),
        "answer to the deletion of an artifact version",
      );
    },
    readFile: (artifactId, path, options = {}) =>
      api.transport.bytes("GET", api.baseUrl + file(artifactId, path), { ...options, headers: { accept: "*/*" } }),
  };
}
