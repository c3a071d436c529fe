/** Artifact versions of the library, and their conversion from the wire's snake_case. Metadata keep their keys. */
import type { ArtifactSummary as WireArtifactSummary, ArtifactVersion as WireArtifactVersion } from "../../base/schema/index.ts";

/** A file of an artifact version. */
export interface ArtifactFileInfo {
  /** Path inside the version, relative, with forward slashes. */
  readonly path: string;
  /** Size of the file in bytes. */
  readonly sizeBytes: number;
  /** SHA-256 digest, lower-case hexadecimal. */
  readonly sha256: string;
}

/** Name, address and state of an artifact version. */
export interface ArtifactFacts {
  /** UUID that addresses the version in calls. */
  readonly id: string;
  /** Team or user that owns the artifact. */
  readonly entity: string;
  /** Project where the artifact is stored. */
  readonly project: string;
  /** Name shared by all versions of the artifact. */
  readonly name: string;
  /** Version number: 0, 1, 2 … per name. */
  readonly version: number;
  /** `open` until the commit, `committed` from then on. */
  readonly state: "open" | "committed";
  /** Address of the version: `artifact:///entity/project/name:vN`. */
  readonly url: string;
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

function artifactFacts(version: Omit<WireArtifactVersion, "files">): ArtifactFacts {
  const { id, entity, project, name, version: number, state, url, metadata, created_at: createdAt } = version;
  return { id, entity, project, name, version: number, state, url, metadata, createdAt };
}

export function artifactFromWire(version: WireArtifactVersion): ArtifactVersion {
  const files = version.files.map(({ path, size_bytes: sizeBytes, sha256 }) => ({ path, sizeBytes, sha256 }));
  return { ...artifactFacts(version), files };
}

export function artifactSummaryFromWire(version: WireArtifactSummary): ArtifactSummary {
  return { ...artifactFacts(version), fileCount: version.file_count, bytes: version.bytes };
}
