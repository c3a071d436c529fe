/** Uploaded files of the fine-tuning interface: rows that name an artifact version with one file. */
import { requireBytes } from "./entities.ts";
import { randomUUID } from "node:crypto";
import { NotFoundError } from "../../base/errors.ts";
import { isAfter, pageOf, requireCursor, type PageRequest, type RowPage } from "./paging.ts";
import type { FileRow, Store } from "./tables.ts";

/** Project of the artifacts that contain uploaded files. */
const FILES_PROJECT = "files";

/** File to insert. Its contents are a stored blob. */
export interface NewFile {
  readonly entity: string;
  readonly filename: string;
  readonly purpose: string;
  /** Path of the file in its artifact version. */
  readonly path: string;
  readonly sha256: string;
  readonly sizeBytes: number;
  /** Seconds until the file expires; null = never. */
  readonly expiresAfterSeconds: number | null;
}

/** Returns a new identifier: `prefix` and 24 hexadecimal digits. */
export function newId(prefix: string): string {
  return prefix + randomUUID().replaceAll("-", "").slice(0, 24);
}

/**
 * Inserts a file with its committed artifact version. Call it within a transaction.
 *
 * @throws QuotaError `E_QUOTA` if its entity may not store so many bytes more.
 */
export async function insertFile(transaction: Store, file: NewFile): Promise<FileRow> {
  const { entity, filename, purpose, path, sha256, sizeBytes, expiresAfterSeconds } = file;
  const now = new Date();
  const row: FileRow = {
    id: newId("file-"),
    entity,
    artifact_id: randomUUID(),
    filename,
    purpose,
    size_bytes: sizeBytes,
    created_at: now.toISOString(),
    expires_at: expiresAfterSeconds === null ? null : new Date(now.getTime() + expiresAfterSeconds * 1000).toISOString(),
  };
  const artifact = { id: row.artifact_id, entity, project: FILES_PROJECT, name: row.id, version: 0 };
  const metadata = JSON.stringify({ filename, purpose });
  await transaction
    .insertInto("artifacts")
    .values({ ...artifact, state: "committed", metadata, created_at: row.created_at })
    .execute();
  await requireBytes(transaction, entity, sizeBytes);
  await transaction.insertInto("artifact_files").values({ artifact_id: artifact.id, path, sha256, size_bytes: sizeBytes }).execute();
  await transaction.insertInto("files").values(row).execute();
  return row;
}

/** Selects the files that have not expired. */
function selectExisting(store: Store) {
  const now = new Date().toISOString();
  return store
    .selectFrom("files")
    .selectAll()
    .where((where) => where.or([where("expires_at", "is", null), where("expires_at", ">", now)]));
}

/** Returns a file. @throws NotFoundError `E_NOT_FOUND`, naming `param`, if it does not exist, was deleted or has expired. */
export async function getFile(store: Store, id: string, param: string): Promise<FileRow> {
  const row = await selectExisting(store).where("id", "=", id).executeTakeFirst();
  if (row !== undefined) return row;
  throw new NotFoundError(`File '${id.slice(0, 100)}' does not exist, was deleted or has expired. Upload it with POST /v1/files`, {
    param,
  });
}

/** Filters and order of {@link pageOfFiles}. */
export interface FileFilters extends PageRequest {
  readonly order: "asc" | "desc";
  readonly purpose?: string | undefined;
}

/**
 * Returns a page of files by time of creation.
 *
 * @throws ArgumentError `E_ARGUMENT` if `after` is not a file.
 */
export async function pageOfFiles(store: Store, { after, limit, order, purpose }: FileFilters): Promise<RowPage<FileRow>> {
  let query = selectExisting(store)
    .orderBy("created_at", order)
    .orderBy("id", order)
    .limit(limit + 1);
  if (purpose !== undefined) query = query.where("purpose", "=", purpose);
  if (after !== undefined) {
    const row = await store.selectFrom("files").select(["created_at", "id"]).where("id", "=", after).executeTakeFirst();
    const cursor = requireCursor(row, after, "a file");
    query = query.where(isAfter("files", cursor, order));
  }
  return pageOf(await query.execute(), limit);
}

/** Returns the artifact versions of the files that have expired. */
export async function expiredFiles(store: Store): Promise<string[]> {
  const rows = await store.selectFrom("files").select("artifact_id").where("expires_at", "<=", new Date().toISOString()).execute();
  return rows.map((row) => row.artifact_id);
}
