/** The route of the audit log. */
import { NotFoundError } from "../../base/errors.ts";
import { auditQuery, auditRecordList, type AuditRecordList } from "../../base/schema/index.ts";
import { readQuery } from "../http/body.ts";
import type { Route } from "../openapi/route.ts";
import { requireAdministrator } from "../http/principal.ts";
import { pageOfRecords } from "../store/audit-log.ts";
import { pageBody } from "../store/paging.ts";
import type { Store } from "../store/tables.ts";

/** Creates `GET /v1/preview/audit-log`. @param isOn - Whether the service records requests. */
export function auditLogRoutes(store: Store, isOn: boolean): Route[] {
  return [
    {
      method: "GET",
      path: "/v1/preview/audit-log",
      id: "listAuditRecords",
      tag: "Service",
      access: ["admin"],
      isExtension: true,
      summary: "List the records of the audit log, newest first",
      query: auditQuery,
      answer: auditRecordList,
      errors: [404],
      async handle(c) {
        requireAdministrator(c, "reading the audit log of all entities");
        if (!isOn)
          throw new NotFoundError("This service keeps no audit log. Start it with `--audit-log`, or with the option `auditLog: true`");
        const { rows, hasMore } = await pageOfRecords(store, readQuery(c, auditQuery));
        return c.json(pageBody(rows, hasMore) satisfies AuditRecordList);
      },
    },
  ];
}
