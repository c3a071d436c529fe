/** Records of the audit log. A record is appended before the request is handled, and completed with the status of the answer. */
import { randomHex } from "../../base/util/random-hex.ts";
import type { AuditQuery } from "../../base/schema/index.ts";
import { pageOf, requireCursor, type PageRequest, type RowPage } from "./paging.ts";
import type { Store } from "./tables.ts";
import type { AuditLogRow } from "./team-tables.ts";

/** Number of identifiers that this process has created, so that records of one millisecond stay in order. */
let createdIds = 0;

/** Returns an identifier that sorts by time: 12 hexadecimal digits of the time in milliseconds, 4 of a counter, 16 random ones. */
function newId(timeMs: number): string {
  const counter = (createdIds % 0x10000).toString(16).padStart(4, "0");
  createdIds++;
  return timeMs.toString(16).padStart(12, "0") + counter + randomHex();
}

/** Appends a record without a status. @returns its identifier. */
export async function beginRecord(store: Store, record: Omit<AuditLogRow, "id" | "created_at" | "status">): Promise<string> {
  const now = new Date();
  const id = newId(now.getTime());
  await store
    .insertInto("audit_log")
    .values({ ...record, id, created_at: now.toISOString(), status: null })
    .execute();
  return id;
}

/** Completes a record. A record has one status, which is never changed. */
export async function endRecord(store: Store, id: string, { status, object }: Pick<AuditLogRow, "status" | "object">): Promise<void> {
  await store.updateTable("audit_log").set({ status, object }).where("id", "=", id).where("status", "is", null).execute();
}

/**
 * Returns a page of records, newest first.
 *
 * @throws ArgumentError `E_ARGUMENT` if `after` is not a record.
 */
export async function pageOfRecords(
  store: Store,
  { after, limit, action, entity }: PageRequest & Pick<AuditQuery, "action" | "entity">,
): Promise<RowPage<AuditLogRow>> {
  let query = store
    .selectFrom("audit_log")
    .selectAll()
    .orderBy("id", "desc")
    .limit(limit + 1);
  if (action !== undefined) query = query.where("action", "=", action);
  if (entity !== undefined) query = query.where("entity", "=", entity);
  if (after !== undefined) {
    const cursor = await store.selectFrom("audit_log").select("id").where("id", "=", after).executeTakeFirst();
    query = query.where("id", "<", requireCursor(cursor, after, "a record of the audit log").id);
  }
  return pageOf(await query.execute(), limit);
}
