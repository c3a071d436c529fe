/**
 * Schemas of artifacts: versioned sets of uploaded files.
 *
 * "Extension" marks routes and fields that this service adds to the interface that it implements.
 */

import { z } from "zod";
import { listOf, namePart, newestFirstQuery, uuid } from "./common.ts";

/** Pattern of a path component: no slash, backslash or NUL, and neither `.` nor `..`. */
const PART = String.raw`(?!\.{1,2}(?:/|$))[^/\\\0]+`;

/** A path inside an artifact: relative, forward slashes, no empty, `.` or `..` component; max 512 characters. */
export const artifactPath = z
  .string()
  .min(1)
  .max(512)
  .regex(
    new RegExp(`^${PART}(?:/${PART})*$`),
    "must be a relative path inside the artifact: no leading '/', no '.', '..' or empty part, no backslash",
  );

/** Schema of {@link CreateArtifactRequest}. */
export const createArtifactRequest = z.strictObject({
  /** Team or user that owns the artifact. @default the key's entity */
  entity: namePart.nullish(),
  /** Project where the artifact is stored. */
  project: namePart,
  /** Name within the project; every request with the same name opens the next version. */
  name: namePart,
  /** Arbitrary metadata about the contents. @default {} */
  metadata: z.record(z.string(), z.json()).nullish(),
});
/** Body of `POST /v1/preview/artifacts`: opens a new version of `entity/project/name`. Extension. @interface */
export type CreateArtifactRequest = z.infer<typeof createArtifactRequest>;

/** Schema of {@link ArtifactFile}. */
export const artifactFile = z.object({
  /** Path inside the version, relative, with forward slashes. */
  path: artifactPath,
  /** Size in bytes. */
  size_bytes: z.int().min(0),
  /** SHA-256 digest, lower-case hexadecimal. */
  sha256: z.string().regex(/^[0-9a-f]{64}$/),
});
/** A file of an artifact version. @interface */
export type ArtifactFile = z.infer<typeof artifactFile>;

/** Schema of {@link ArtifactVersion}. */
export const artifactVersion = z.object({
  /** UUID that addresses the version in the artifact routes. */
  id: uuid,
  /** Team or user that owns the artifact. */
  entity: z.string(),
  /** Project where the artifact is stored. */
  project: z.string(),
  /** Name shared by all versions of the artifact. */
  name: z.string(),
  /** Version number: 0, 1, 2 … per name. */
  version: z.int().min(0),
  /** `open` until the commit, `committed` from then on. */
  state: z.literal(["open", "committed"]),
  /** Address of the version: `artifact:///entity/project/name:vN`. */
  url: z.string(),
  /** Stored files, sorted by path. */
  files: z.array(artifactFile),
  /** Metadata of the request that opened the version. */
  metadata: z.record(z.string(), z.json()),
  /** Time at which the version was opened, ISO 8601. */
  created_at: z.string(),
});
/** An artifact version: an `open` version accepts files, a `committed` version is immutable and usable. @interface */
export type ArtifactVersion = z.infer<typeof artifactVersion>;

/** Schema of {@link ArtifactQuery}. */
export const artifactQuery = newestFirstQuery.extend({
  /** Only artifacts of this entity. */
  entity: namePart.optional(),
  /** Only artifacts of this project. */
  project: namePart.optional(),
  /** Only versions of the artifact with this name. */
  name: namePart.optional(),
  /** Only versions in this state. */
  state: z.literal(["open", "committed"]).optional(),
});
/** Query parameters of `GET /v1/preview/artifacts`. Extension. @interface */
export type ArtifactQuery = z.infer<typeof artifactQuery>;

/** Schema of {@link ArtifactSummary}. */
export const artifactSummary = artifactVersion.omit({ files: true }).extend({
  /** Number of files. */
  file_count: z.int().min(0),
  /** Total size of the files in bytes. Versions with equal files share their contents on disk. */
  bytes: z.int().min(0),
});
/** An artifact version without its file list: an entry of `GET /v1/preview/artifacts`. Extension. @interface */
export type ArtifactSummary = z.infer<typeof artifactSummary>;

/** Schema of {@link ArtifactList}. */
export const artifactList = listOf(artifactSummary);
/** Answer of `GET /v1/preview/artifacts`: a page of artifact versions, newest first. Extension. @interface */
export type ArtifactList = z.infer<typeof artifactList>;

/** Schema of {@link DeleteArtifactResponse}. */
export const deleteArtifactResponse = z.object({
  /** UUID of the deleted version. */
  artifact_id: uuid,
  /** Number of files that the version had; contents shared with another version remain stored. */
  deleted_files: z.int().min(0),
});
/** Answer of `DELETE /v1/preview/artifacts/{id}`. Extension. @interface */
export type DeleteArtifactResponse = z.infer<typeof deleteArtifactResponse>;
