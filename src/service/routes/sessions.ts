/** Routes of sessions: an agent samples with the key of a session, and the client that created it reads the trajectory and scores it. */
import {
  createSessionRequest,
  deleteSessionResponse,
  finishSessionRequest,
  createdSession,
  session,
  sessionList,
  sessionMetricsRequest,
  sessionQuery,
  sessionReadQuery,
  sessionRewardRequest,
  sessionWithTrajectory,
  type CreatedSession,
  type Session,
  type SessionList,
  type SessionWithTrajectory,
} from "../../base/schema/index.ts";
import { readJson, readQuery, type ServiceRequest } from "../http/body.ts";
import type { RouteContext } from "./context.ts";
import { pathParameter, type Route } from "../openapi/route.ts";
import { recordedTrajectory } from "../sessions/recorded-trajectory.ts";
import { requireOpenSession } from "../sessions/sessions.ts";
import { pageBody } from "../store/paging.ts";
import { getSession, pageOfSessions } from "../store/sessions.ts";
import type { SessionRow } from "../store/tables.ts";
import { principalOf } from "../http/principal.ts";
import { entityFor } from "../store/visibility.ts";

const SESSIONS_PATH = "/v1/preview/sessions";
const SESSION_PATH = `${SESSIONS_PATH}/{session_id}`;
const common = { tag: "Sessions", isExtension: true } as const;

/** Returns the status of a session: open until it is finished or its time is over. */
function statusOf({ finished_at: finished, open_until: until }: SessionRow): Session["status"] {
  if (finished !== null) return "finished";
  return until <= new Date().toISOString() ? "timed_out" : "open";
}

/** Converts a session. Only the answer to its creation has the key, of which the service stores a hash. */
function toWire(row: SessionRow, c: ServiceRequest, key: string | null = null): Session {
  const { host, protocol } = new URL(c.req.url);
  // A proxy that terminates TLS sets the header. It is trusted, because it changes only URLs in the answer to its sender.
  const isBehindTls = c.req.header("x-forwarded-proto") === "https";
  const origin = `${isBehindTls ? "https:" : protocol}//${host}`;
  const { last_seq: _lastSeq, key: _hash, entity: _entity, model_id: _modelId, ...columns } = row;
  return {
    ...columns,
    key,
    status: statusOf(row),
    metrics: JSON.parse(row.metrics) as Session["metrics"],
    metadata: JSON.parse(row.metadata) as Session["metadata"],
    sampling_defaults: JSON.parse(row.sampling_defaults) as Session["sampling_defaults"],
    sampling_overrides: JSON.parse(row.sampling_overrides) as Session["sampling_overrides"],
    urls: {
      openai: `${origin}/v1`,
      anthropic: origin,
      openai_path: `${origin}/sessions/${key ?? row.id}/v1`,
      anthropic_path: `${origin}/sessions/${key ?? row.id}`,
      session: `${origin}${SESSIONS_PATH}/${row.id}`,
    },
  };
}

/** Creates the routes of sessions: create, list, read, score, finish, delete. All are extensions of the interface. */
export function sessionRoutes(context: RouteContext): Route[] {
  const { sessions, space, policies, work } = context;
  const find = (c: ServiceRequest): Promise<SessionRow> => getSession(context.of(c).store, pathParameter(c, "session_id"));
  /** Finds a session to score. With its own key, a session changes its score only while it is open. */
  const findScored = async (c: ServiceRequest): Promise<SessionRow> => {
    const row = await find(c);
    if (principalOf(c).sessionKey !== null) requireOpenSession(row);
    return row;
  };
  return [
    {
      ...common,
      method: "POST",
      path: SESSIONS_PATH,
      id: "createSession",
      access: ["sample"],
      summary: "Create a session for an agent of any kind",
      description: "Every request with the key of the session samples its model and becomes part of its trajectory.",
      body: createSessionRequest,
      answer: createdSession,
      errors: [404],
      handle: async (c) => {
        const { value } = await readJson(c, "session", work.bodies);
        await space.requireSpace();
        // Checks that the caller may sample the model; each request of the session resolves it again.
        const lease = await policies.resolvePolicy(value.model, principalOf(c).visibility, { signal: c.req.raw.signal });
        lease.release();
        // An administrator creates a session for the owner of the model.
        const entity = lease.model?.entity ?? entityFor(context.of(c).store, null, "model");
        const { row, key } = await sessions.create(value, { entity, model_id: lease.model?.id ?? null });
        return c.json({ ...toWire(row, c, key), key } satisfies CreatedSession);
      },
    },
    {
      ...common,
      method: "GET",
      path: SESSIONS_PATH,
      id: "listSessions",
      access: ["sample", "read"],
      summary: "List sessions, newest first",
      query: sessionQuery,
      answer: sessionList,
      handle: async (c) => {
        const { rows, hasMore } = await pageOfSessions(context.of(c).store, readQuery(c, sessionQuery));
        const data = rows.map((row) => toWire(row, c));
        return c.json(pageBody(data, hasMore) satisfies SessionList);
      },
    },
    {
      ...common,
      method: "GET",
      path: SESSION_PATH,
      id: "getSession",
      access: ["sample", "read"],
      summary: "Read a session with its trajectory",
      description: "With `wait`, the answer is delayed until the session is no longer open.",
      query: sessionReadQuery,
      answer: sessionWithTrajectory,
      handle: async (c) => {
        const { trajectory, wait: waitSeconds } = readQuery(c, sessionReadQuery);
        if (waitSeconds > 0) await sessions.untilOver(await find(c), waitSeconds * 1000, c.req.raw.signal);
        const row = await find(c);
        const recorded = trajectory === "omit" ? null : await recordedTrajectory(sessions.store, row);
        return c.json({ ...toWire(row, c), trajectory: recorded } satisfies SessionWithTrajectory);
      },
    },
    {
      ...common,
      method: "POST",
      path: `${SESSION_PATH}/reward`,
      id: "setSessionReward",
      access: ["sample"],
      summary: "Set the reward",
      description: "Replaces an earlier reward.",
      isForSessions: true,
      body: sessionRewardRequest,
      answer: session,
      errors: [403],
      handle: async (c) => {
        const { value } = await readJson(c, "sessionReward", work.bodies);
        return c.json(toWire(await sessions.score(await findScored(c), value), c));
      },
    },
    {
      ...common,
      method: "POST",
      path: `${SESSION_PATH}/metrics`,
      id: "addSessionMetrics",
      access: ["sample"],
      summary: "Add metrics",
      description: "Replaces earlier values of the same names.",
      isForSessions: true,
      body: sessionMetricsRequest,
      answer: session,
      errors: [403],
      handle: async (c) => {
        const { value } = await readJson(c, "sessionMetrics", work.bodies);
        return c.json(toWire(await sessions.score(await findScored(c), value), c));
      },
    },
    {
      ...common,
      method: "POST",
      path: `${SESSION_PATH}/finish`,
      id: "finishSession",
      access: ["sample"],
      summary: "Finish a session, and cancel its running requests",
      description: "Sets reward and metrics, if given. Finishing again has no other effect.",
      isForSessions: true,
      body: finishSessionRequest,
      answer: session,
      errors: [403],
      handle: async (c) => {
        const { value } = await readJson(c, "sessionFinish", work.bodies);
        if (value.reward !== undefined || value.metrics !== undefined) await sessions.score(await findScored(c), value);
        return c.json(toWire(await sessions.finish(await find(c)), c));
      },
    },
    {
      ...common,
      method: "DELETE",
      path: SESSION_PATH,
      id: "deleteSession",
      access: ["sample"],
      summary: "Delete a session with its trajectory",
      answer: deleteSessionResponse,
      handle: async (c) => {
        const row = await find(c);
        return c.json({ session_id: row.id, deleted_turns: await sessions.delete(row) });
      },
    },
  ];
}
