/** Audit log: records of the requests that create, train, change, download or delete something. */
import type { MiddlewareHandler } from "hono";
import { logFailure, type ServiceLogger } from "./common/logger.ts";
import type { DiskSpace } from "./disk/space.ts";
import type { ServiceEnvironment, ServiceRequest } from "./http/body.ts";
import { callerOf } from "./http/caller.ts";
import { requestIdOf } from "./http/request-id.ts";
import { matchedPattern, patternOf, type RouteSpec } from "./openapi/route.ts";
import { beginRecord, endRecord } from "./store/audit-log.ts";
import type { Store } from "./store/tables.ts";

/** Operation ids of requests that change nothing, although their method is not GET. */
const UNRECORDED = new Set(["runGrader", "validateGrader", "setSessionReward", "addSessionMetrics", "finishSession"]);

/** Operation ids of downloads. */
const DOWNLOADS = new Set(["downloadCheckpoint", "getArtifactFile", "getFileContent", "getJobTokens"]);

/**
 * Returns true for routes whose requests are recorded: downloads, and routes that change something. Requests that sample, and the scores
 * that agents report, are not recorded.
 */
export function isAudited({ method, tag, id }: Pick<RouteSpec, "method" | "tag" | "id">): boolean {
  return DOWNLOADS.has(id) || (method !== "GET" && tag !== "Chat" && !UNRECORDED.has(id));
}

/** Parts of a service that the audit log needs. */
interface AuditContext {
  readonly store: Store;
  readonly space: Pick<DiskSpace, "freeing">;
  readonly logger: ServiceLogger;
}

/** Returns the identifiers in the path of a request; null for a path without parameters. */
function objectInPath(c: ServiceRequest, { path }: Pick<RouteSpec, "path">): string | null {
  const fixedPart = path.split("{")[0] ?? "";
  return fixedPart === path ? null : c.req.path.slice(fixedPart.length);
}

/** Returns the `id` of a JSON answer; null without one. */
async function idInAnswer({ res }: ServiceRequest): Promise<string | null> {
  if (!res.ok || res.headers.get("content-type")?.startsWith("application/json") !== true) return null;
  const { id } = (await res.clone().json()) as { readonly id?: unknown };
  return typeof id === "string" ? id : null;
}

/**
 * Creates the middleware that records requests. The record is written before the request is handled, and its status before the answer is
 * sent, so that no action is without a record, also if the service is killed.
 */
export function auditRequests({ store, space, logger }: AuditContext, routes: readonly RouteSpec[]): MiddlewareHandler<ServiceEnvironment> {
  /** Recorded routes by method and pattern. */
  const audited = new Map(routes.filter(isAudited).map((route) => [`${route.method} ${patternOf(route)}`, route]));
  return async function auditRequestsMiddleware(c, next) {
    const route = audited.get(`${c.req.method} ${matchedPattern(c) ?? ""}`);
    if (route === undefined) return next();
    const { entity, keyId } = callerOf(c);
    const object = objectInPath(c, route);
    const record = { request_id: requestIdOf(c.env.incoming), entity, key_id: keyId, action: route.id, object };
    const id = await space.freeing(() => beginRecord(store, record));
    await next();
    const result = { status: c.res.status, object: object ?? (await idInAnswer(c)) };
    await space
      .freeing(() => endRecord(store, id, result))
      .catch(logFailure(logger, "The status of a record of the audit log could not be written", { request: record.request_id, ...result }));
  };
}
