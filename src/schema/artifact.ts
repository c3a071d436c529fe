import { z } from "zod";
import { namePart, uuid } from "./common.ts";

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

/** Body of `POST /v1/preview/artifacts`: opens a new version of `entity/project/name`. Extension. */
export const createArtifactRequest = z.strictObject({
  entity: namePart.nullish(),
  project: namePart,
  name: namePart,
  /** Arbitrary metadata about the contents. */
  metadata: z.record(z.string(), z.json()).nullish(),
});
export type CreateArtifactRequest = z.infer<typeof createArtifactRequest>;

/** A file of an artifact version. */
export const artifactFile = z.object({
  path: artifactPath,
  size_bytes: z.int().min(0),
  /** SHA-256 digest, lower-case hexadecimal. */
  sha256: z.string().regex(/^[0-9a-f]{64}$/),
});
export type ArtifactFile = z.infer<typeof artifactFile>;

/** An artifact version: an `open` version accepts files, a `committed` version is immutable and usable. */
export const artifactVersion = z.object({
  id: uuid,
  entity: z.string(),
  project: z.string(),
  name: z.string(),
  /** Version number: 0, 1, 2 … per name. */
  version: z.int().min(0),
  state: z.enum(["open", "committed"]),
  /** Address of the version: `artifact:///entity/project/name:vN`. */
  url: z.string(),
  files: z.array(artifactFile),
  metadata: z.record(z.string(), z.json()),
  created_at: z.string(),
});
export type ArtifactVersion = z.infer<typeof artifactVersion>;

/** Answer of `DELETE /v1/preview/artifacts/{id}`. Extension. */
export const deleteArtifactResponse = z.object({ artifact_id: uuid, deleted_files: z.int().min(0) });
export type DeleteArtifactResponse = z.infer<typeof deleteArtifactResponse>;
