import { randomUUID } from "node:crypto";
import { expect, onTestFinished, test } from "vitest";
import { StoredSessions } from "../../../src/service/sessions/sessions.ts";
import { revisionOf, unsynchronized } from "../../../src/service/store/database.ts";
import { isOnPostgres, openTestStore } from "../../support/postgres.ts";
import { deliveredTurns, getSession, insertTurns, type NewTurn } from "../../../src/service/store/sessions.ts";
import type { Store } from "../../../src/service/store/tables.ts";
import { temporaryDirectory } from "../support.ts";

async function newStore(): Promise<Store> {
  const store = await openTestStore(await temporaryDirectory());
  onTestFinished(() => store.destroy());
  return store;
}

function turn(session: string, seq: number, tokens: number): NewTurn {
  const row = { session_id: session, seq, dialect: "chat", digest: `digest ${seq}`, request: `{"seq":${seq}}`, completion: "{}" };
  return { row: { ...row, is_delivered: 1, created_at: new Date().toISOString() }, tokens };
}

test("recorded turns are counted, keep values that are cached by revision, and are dropped if their session was deleted", async () => {
  const store = await newStore();
  const sessions = new StoredSessions(store);
  const {
    row: { id },
  } = await sessions.create({ model: "whetstone-tiny" }, { entity: "local", model_id: null });
  const before = revisionOf(store);
  const recorded = [turn(id, 2, 7), turn(id, 1, 5), turn(randomUUID(), 1, 3)];
  await unsynchronized(store, (execute) => insertTurns(execute, recorded));
  expect(await getSession(store, id)).toMatchObject({ requests: 2, tokens: 12, last_seq: 2 });
  expect((await deliveredTurns(store, id)).map(({ request }) => request)).toEqual(['{"seq":1}', '{"seq":2}']);
  expect(await store.selectFrom("session_turns").selectAll().execute()).toHaveLength(2);
  if (!isOnPostgres()) expect(revisionOf(store)).toBe(before);
});

test("a transaction of turns that fails records none of them, and the next one succeeds", async () => {
  const store = await newStore();
  const sessions = new StoredSessions(store);
  const {
    row: { id },
  } = await sessions.create({ model: "whetstone-tiny" }, { entity: "local", model_id: null });
  await expect(unsynchronized(store, (execute) => insertTurns(execute, [turn(id, 1, 5), turn(id, 1, 5)]))).rejects.toThrow(/unique/iu);
  expect(await getSession(store, id)).toMatchObject({ requests: 0, tokens: 0 });
  await unsynchronized(store, (execute) => insertTurns(execute, [turn(id, 1, 5)]));
  expect(await getSession(store, id)).toMatchObject({ requests: 1, tokens: 5 });
});
