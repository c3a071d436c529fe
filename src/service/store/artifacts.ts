/** Rows of artifact versions and their files. */
import { NotFoundError } from "../../base/errors.ts";
import type { ArtifactQuery } from "../../base/schema/index.ts";
import { hasOutcome } from "./rollout-tasks.ts";
import { artifactUrl, pathOf, type QualifiedName } from "../common/names.ts";
import { isAfter, pageOf, requireCursor, type RowPage } from "./paging.ts";
import { entityFor } from "./visibility.ts";
import type { ArtifactFileRow, ArtifactRow, Store } from "./tables.ts";

/** Artifact version with its files, ordered by path. */
export interface StoredArtifact extends ArtifactRow {
  readonly state: "open" | "committed";
  readonly files: readonly ArtifactFileRow[];
}

/** Row that is not deleted. */
type ExistingRow = ArtifactRow & Pick<StoredArtifact, "state">;

/** Whether a row was found and is not deleted. */
function exists(row: ArtifactRow | undefined): row is ExistingRow {
  return row !== undefined && row.state !== "deleted";
}

/** Returns a version with its files. */
async function withFiles(store: Store, row: ExistingRow): Promise<StoredArtifact> {
  const files = await store.selectFrom("artifact_files").selectAll().where("artifact_id", "=", row.id).execute();
  // Sorted here by bytes, because the order of a database depends on its language settings.
  return { ...row, files: files.toSorted((a, b) => Buffer.compare(Buffer.from(a.path), Buffer.from(b.path))) };
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

/**
 * Returns an artifact version by name.
 *
 * @param param - Request field named in errors.
 * @throws NotFoundError `E_NOT_FOUND` if it does not exist or was deleted.
 * @throws ForbiddenError `E_FORBIDDEN` for another entity than the caller's.
 */
export async function getArtifactByName(
  store: Store,
  qualified: QualifiedName & { readonly version: number },
  param: string,
): Promise<StoredArtifact> {
  const { entity, project, name, version } = qualified;
  entityFor(store, entity, param);
  const row = await store
    .selectFrom("artifacts")
    .selectAll()
    .where((where) => where.and({ entity, project, name, version }))
    .executeTakeFirst();
  if (!exists(row))
    throw new NotFoundError(
      `Artifact '${artifactUrl(qualified)}' does not exist, or was deleted. Upload it to '${pathOf(qualified)}' first`,
      { param },
    );
  return withFiles(store, row);
}

/** Whether a file of any version, or the outcome of any rollout task, has the content with this digest. */
export async function isBlobReferenced(store: Store, sha256: string): Promise<boolean> {
  const file = await store.selectFrom("artifact_files").select("sha256").where("sha256", "=", sha256).limit(1).executeTakeFirst();
  return file !== undefined || (await hasOutcome(store, sha256));
}

/** Artifact version with the number and size of its files. */
export interface SummarizedArtifact extends ArtifactRow {
  readonly state: "open" | "committed";
  readonly file_count: number;
  readonly bytes: number;
}

/**
 * Returns a page of artifact versions, newest first, without deleted ones.
 *
 * @throws ArgumentError `E_ARGUMENT` if `after` is not an artifact version.
 * @throws ForbiddenError `E_FORBIDDEN` for another entity than the caller's.
 */
export async function pageOfArtifacts(store: Store, { after, limit, ...filters }: ArtifactQuery): Promise<RowPage<SummarizedArtifact>> {
  entityFor(store, filters.entity, "entity");
  let query = store
    .selectFrom("artifacts")
    .leftJoin("artifact_files", "artifact_files.artifact_id", "artifacts.id")
    .selectAll("artifacts")
    .select((eb) => [
      eb.fn.count<number>("artifact_files.path").as("file_count"),
      eb.fn.coalesce(eb.fn.sum<number>("artifact_files.size_bytes"), eb.lit(0)).as("bytes"),
    ])
    .where("state", "!=", "deleted")
    .groupBy("artifacts.id")
    .orderBy("artifacts.created_at", "desc")
    .orderBy("artifacts.id", "desc")
    .limit(limit + 1);
  for (const column of ["entity", "project", "name", "state"] as const) {
    const value = filters[column];
    if (value !== undefined) query = query.where(column, "=", value);
  }
  if (after !== undefined) {
    const row = await store.selectFrom("artifacts").select(["created_at", "id"]).where("id", "=", after.toLowerCase()).executeTakeFirst();
    query = query.where(isAfter("artifacts", requireCursor(row, after, "an artifact version")));
  }
  return pageOf((await query.execute()) as SummarizedArtifact[], limit);
}
