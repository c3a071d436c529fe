import { NotFoundError } from "../../errors.ts";
import { artifactUrl, pathOf, type QualifiedName } from "../names.ts";
import type { ArtifactFileRow, ArtifactRow, Store } from "./tables.ts";

/** Artifact version with its files, ordered by path. */
export interface StoredArtifact extends ArtifactRow {
  readonly state: "open" | "committed";
  readonly files: readonly ArtifactFileRow[];
}

type ExistingRow = ArtifactRow & Pick<StoredArtifact, "state">;

function exists(row: ArtifactRow | undefined): row is ExistingRow {
  return row !== undefined && row.state !== "deleted";
}

async function withFiles(store: Store, row: ExistingRow): Promise<StoredArtifact> {
  const files = await store.selectFrom("artifact_files").selectAll().where("artifact_id", "=", row.id).orderBy("path").execute();
  return { ...row, files };
}

/** Returns an artifact version. @throws NotFoundError `E_NOT_FOUND` if it does not exist or was deleted. */
export async function getArtifact(store: Store, id: string): Promise<StoredArtifact> {
  const row = await store.selectFrom("artifacts").selectAll().where("id", "=", id.toLowerCase()).executeTakeFirst();
  if (!exists(row))
    throw new NotFoundError(`Artifact version '${id}' does not exist, or was deleted. Open one with POST /v1/preview/artifacts`, {
      param: "artifact_id",
    });
  return withFiles(store, row);
}

/** Returns an artifact version by name. @throws NotFoundError `E_NOT_FOUND`, naming `param`, if it does not exist or was deleted. */
export async function getArtifactByName(
  store: Store,
  name: QualifiedName & { readonly version: number },
  param: string,
): Promise<StoredArtifact> {
  const row = await store
    .selectFrom("artifacts")
    .selectAll()
    .where("entity", "=", name.entity)
    .where("project", "=", name.project)
    .where("name", "=", name.name)
    .where("version", "=", name.version)
    .executeTakeFirst();
  if (!exists(row))
    throw new NotFoundError(`Artifact '${artifactUrl(name)}' does not exist, or was deleted. Upload it to '${pathOf(name)}' first`, {
      param,
    });
  return withFiles(store, row);
}

/** Whether a file of any version has the content with this digest. */
export async function isBlobReferenced(store: Store, sha256: string): Promise<boolean> {
  const row = await store.selectFrom("artifact_files").select("sha256").where("sha256", "=", sha256).limit(1).executeTakeFirst();
  return row !== undefined;
}
