/** Reading of the service's audit log, for `service.auditLog`. */
import { auditRecord, auditRecordList, type AuditRecord as WireAuditRecord } from "../../base/schema/index.ts";
import type { Api } from "./api.ts";
import { allPages, type ListOptions } from "./pages.ts";
import { fromWire, type CamelKeys } from "./wire.ts";

/** Record of an action that changed, trained or downloaded something. */
export type AuditRecord = CamelKeys<WireAuditRecord>;

/** Filters and number of the records that `service.auditLog` returns. */
export interface AuditLogOptions extends ListOptions {
  /** Only actions of this operation id, such as `deleteModel`. @default all */
  readonly action?: string | undefined;
  /** Only actions of this entity. @default all */
  readonly entity?: string | undefined;
}

/** Fetches the records of the audit log, newest first. */
export async function auditLogOf(api: Api, { action, entity, ...options }: AuditLogOptions): Promise<AuditRecord[]> {
  const list = { schema: auditRecordList, query: { action, entity }, itemsName: "records of the audit log" };
  const records = await allPages(api, "/v1/preview/audit-log", list, options);
  return records.map((each) => fromWire(auditRecord, each));
}
