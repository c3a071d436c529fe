/** Schemas of the audit log. */

import { z } from "zod";
import { listOf, newestFirstQuery } from "./common.ts";

/** Schema of {@link AuditRecord}. */
export const auditRecord = z.object({
  /** Identifier of the record. Later records have greater identifiers. */
  id: z.string(),
  /** Time at which the service received the request, ISO 8601. */
  created_at: z.string(),
  /** Identifier of the request, as in the header `x-request-id` of its answer. */
  request_id: z.string(),
  /** Owner of the key that sent the request. */
  entity: z.string(),
  /** Identifier of the key, which does not reveal it. */
  key_id: z.string(),
  /** Operation id of the route, such as `createModel` or `downloadCheckpoint`. */
  action: z.string(),
  /** Identifiers in the path of the request, or the identifier of the created object; null if the request created none. */
  object: z.string().nullable(),
  /** HTTP status of the answer; null if the service ended before it answered: the action may have had its effect. */
  status: z.int().nullable(),
});
/** Record of an action that changed, trained or downloaded something. Extension. @interface */
export type AuditRecord = z.infer<typeof auditRecord>;

/** Schema of {@link AuditQuery}. */
export const auditQuery = newestFirstQuery.extend({
  /** Only actions of this operation id. */
  action: z.string().optional(),
  /** Only actions of this entity. */
  entity: z.string().optional(),
});
/** Query parameters of `GET /v1/preview/audit-log`. Extension. @interface */
export type AuditQuery = z.infer<typeof auditQuery>;

/** Schema of {@link AuditRecordList}. */
export const auditRecordList = listOf(auditRecord);
/** Answer of `GET /v1/preview/audit-log`: a page of records, newest first. Extension. @interface */
export type AuditRecordList = z.infer<typeof auditRecordList>;
