import { randomUUID } from "node:crypto";
import { artifactPath, artifactVersion, deleteArtifactResponse, type JsonObject } from "../schema/index.ts";
import { ArgumentError } from "../errors.ts";
import { callCreate, callJson, LONG_CALL_MS, type Api, type CallOptions, type CreateOptions } from "./api.ts";
import type { RequestOptions } from "./transport.ts";
import { artifactFromWire, parseAnswer, type ArtifactVersion } from "./wire.ts";

/** What opens a version. */
export interface CreateArtifactOptions extends CreateOptions {
  readonly project: string;
  readonly name: string;
  /** @default the key's entity */
  readonly entity?: string | undefined;
  /** Free facts about the contents. @default {} */
  readonly metadata?: JsonObject | undefined;
}

/** A file's contents. A function gives them anew for each attempt. */
export type FileBody = Exclude<RequestOptions["body"], undefined>;

/** The `artifacts` resource, an extension: versioned, immutable sets of files. */
export interface Artifacts {
  /** Opens the next version of `entity/project/name`. */
  create(options: CreateArtifactOptions): Promise<ArtifactVersion>;
  /** Puts one file into an open version; the same path again replaces it. */
  putFile(artifactId: string, path: string, body: FileBody, options?: CallOptions): Promise<void>;
  /** Makes the version immutable and usable. */
  commit(artifactId: string, options?: CallOptions): Promise<ArtifactVersion>;
  get(artifactId: string, options?: CallOptions): Promise<ArtifactVersion>;
  readFile(artifactId: string, path: string, options?: CallOptions): Promise<Uint8Array>;
  /**
   * Extension: deletes a version with its files. Its number is not given again.
   *
   * @throws HttpError with status 409 while a job that is not over reads it.
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
      // At worst a repetition leaves an empty open version behind, which nothing can use.
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
