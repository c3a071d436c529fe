/** Rows of sessions and of their recorded turns. Queries for sessions skip expired ones, which are deleted later. */
import { sql } from "kysely";
import { NotFoundError } from "../../base/errors.ts";
import type { SessionQuery } from "../../base/schema/index.ts";
import { isAfter, pageOf, requireCursor, type RowPage } from "./paging.ts";
import { transact, type Execute } from "./database.ts";
import type { SessionRow, SessionTurnRow, Store } from "./tables.ts";

/** Inserts a session. */
export async function insertSession(store: Store, row: SessionRow): Promise<void> {
  await store.insertInto("sessions").values(row).execute();
}

/** Changes columns of a session in a transaction, as a function of its row. Returns the changed row. */
export function updateSession(store: Store, id: string, change: (row: SessionRow) => Partial<SessionRow>): Promise<SessionRow> {
  return transact(store, async (transaction) => {
    const row = await transaction.selectFrom("sessions").selectAll().where("id", "=", id).executeTakeFirstOrThrow();
    const changes = change(row);
    if (Object.keys(changes).length > 0) await transaction.updateTable("sessions").set(changes).where("id", "=", id).execute();
    return { ...row, ...changes };
  });
}

/** Returns the session with an id; undefined for an unknown or expired one. */
export function findSession(store: Store, id: string): Promise<SessionRow | undefined> {
  return unexpired(store).selectAll().where("id", "=", id.toLowerCase()).executeTakeFirst();
}

/** Returns a session. @throws NotFoundError `E_NOT_FOUND` if it does not exist, has expired or was deleted. */
export async function getSession(store: Store, id: string): Promise<SessionRow> {
  const row = await findSession(store, id);
  if (row !== undefined) return row;
  throw new NotFoundError(`Session '${id}' does not exist, has expired or was deleted. Create one with POST /v1/preview/sessions`, {
    param: "session_id",
  });
}

/**
 * Returns the session with a hash of its key; undefined for an unknown or expired one. The query is written in SQL, because every request
 * of a session needs it and building it would take longer than running it.
 */
export async function findSessionByKey(store: Store, hash: string): Promise<SessionRow | undefined> {
  const query = sql<SessionRow>`select * from sessions where key = ${hash} and expires_at > ${new Date().toISOString()}`;
  return (await query.execute(store)).rows[0];
}

/** Returns a query for sessions that have not expired. */
function unexpired(store: Store) {
  return store.selectFrom("sessions").where("expires_at", ">", new Date().toISOString());
}

/**
 * Returns a page of sessions, newest first.
 *
 * @throws ArgumentError `E_ARGUMENT` if `after` is not a session.
 */
export async function pageOfSessions(store: Store, { after, limit, model }: SessionQuery): Promise<RowPage<SessionRow>> {
  let query = unexpired(store)
    .selectAll()
    .orderBy("created_at", "desc")
    .orderBy("id", "desc")
    .limit(limit + 1);
  if (model !== undefined) query = query.where("model", "=", model);
  if (after !== undefined) {
    query = query.where(isAfter("sessions", requireCursor(await findSession(store, after), after, "a session")));
  }
  return pageOf(await query.execute(), limit);
}

/** A turn to record, and the number of its sampled tokens. */
export interface NewTurn {
  readonly row: SessionTurnRow;
  readonly tokens: number;
}

/** Counts of a session's recorded turns. They never decrease. */
export type SessionCounts = Pick<SessionRow, "requests" | "tokens" | "last_seq">;

/** Adds a turn to the counts of its session. Parameters: its tokens, its `seq` twice, the id of the session. */
const COUNT_TURN =
  "update sessions set requests = requests + 1, tokens = tokens + ?, last_seq = case when last_seq > ? then last_seq else ? end where id = ? returning requests, tokens, last_seq";
const INSERT_TURN =
  "insert into session_turns (session_id, seq, dialect, digest, request, completion, is_delivered, created_at) values (?, ?, ?, ?, ?, ?, ?, ?)";

/**
 * Inserts turns and adds them to the counts of their sessions. Call in a transaction. Turns of deleted sessions are dropped. The queries
 * are written in SQL, because building them would take longer than running them.
 *
 * @returns Counts of the session after each turn; null for a deleted session.
 */
export async function insertTurns(execute: Execute, turns: readonly NewTurn[]): Promise<(SessionCounts | null)[]> {
  const countsByTurn: (SessionCounts | null)[] = [];
  for (const { row, tokens } of turns) {
    const [counts = null] = (await execute(COUNT_TURN, [tokens, row.seq, row.seq, row.session_id])) as SessionCounts[];
    if (counts !== null) {
      const { session_id, seq, dialect, digest, request, completion, is_delivered, created_at } = row;
      await execute(INSERT_TURN, [session_id, seq, dialect, digest, request, completion, is_delivered, created_at]);
    }
    countsByTurn.push(counts);
  }
  return countsByTurn;
}

/** Returns the recorded turns of a session that a client received, in order. */
export function deliveredTurns(store: Store, id: string): Promise<Pick<SessionTurnRow, "seq" | "request" | "completion">[]> {
  return store
    .selectFrom("session_turns")
    .select(["seq", "request", "completion"])
    .where("session_id", "=", id)
    .where("is_delivered", "=", 1)
    .orderBy("seq")
    .execute();
}

/** Columns that identify a request: a repeated request has the same values. */
export type TurnKey = Pick<SessionTurnRow, "session_id" | "dialect" | "digest">;

/** Returns the recorded turn of a request: one that no client received, otherwise the newest. */
export function findTurn(store: Store, { session_id, dialect, digest }: TurnKey): Promise<SessionTurnRow | undefined> {
  return store
    .selectFrom("session_turns")
    .selectAll()
    .where((where) => where.and({ session_id, digest, dialect }))
    .orderBy("is_delivered")
    .orderBy("seq", "desc")
    .limit(1)
    .executeTakeFirst();
}

/** Records that a client received the answer of a turn. */
export async function markDelivered(store: Store, { session_id, seq }: Pick<SessionTurnRow, "session_id" | "seq">): Promise<void> {
  await store.updateTable("session_turns").set({ is_delivered: 1 }).where("session_id", "=", session_id).where("seq", "=", seq).execute();
}

/** Deletes expired sessions with their turns. Returns the number of sessions. */
export async function deleteExpired(store: Store): Promise<number> {
  const now = new Date().toISOString();
  const { numDeletedRows } = await store.deleteFrom("sessions").where("expires_at", "<=", now).executeTakeFirst();
  return Number(numDeletedRows);
}

/** Deletes a session. Returns the number of its turns; null if it does not exist. */
export function deleteSession(store: Store, id: string): Promise<number | null> {
  return transact(store, async (transaction) => {
    const turns = await transaction.deleteFrom("session_turns").where("session_id", "=", id.toLowerCase()).executeTakeFirst();
    const { numDeletedRows } = await transaction.deleteFrom("sessions").where("id", "=", id.toLowerCase()).executeTakeFirst();
    return numDeletedRows === 0n ? null : Number(turns.numDeletedRows);
  });
}
