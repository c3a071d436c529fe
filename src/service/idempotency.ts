import { ArgumentError, ConflictError } from "../errors.ts";
import type { ServiceRequest } from "./body.ts";
import { findAnswer, rememberAnswer } from "./store/idempotency-keys.ts";
import type { Store } from "./store/tables.ts";

/** What a creating route does once everything is checked: rows in one transaction, then whatever follows from them. */
export interface Creation {
  /** Writes the rows; its answer is stored beside them, so that both are there after a crash or neither. */
  readonly commit: (transaction: Store) => Promise<unknown>;
  /** Runs after the commit, and not for an answer that is given again. */
  readonly afterwards?: (() => void) | undefined;
  /** Runs when the commit failed: takes back what was prepared. */
  readonly undo?: (() => Promise<void>) | undefined;
}

// Two requests with one key at the same moment: the second waits and gets the first one's answer.
const running = new WeakMap<Store, Map<string, Promise<unknown>>>();

/**
 * Answers a creating POST. With the header `Idempotency-Key`, the same key and body give the same answer for a day (and the last
 * 10 000 keys), whatever happened between.
 *
 * @throws ConflictError `E_CONFLICT` when the key came with another body before.
 * @throws ArgumentError `E_ARGUMENT` when the key is not 1 to 255 visible ASCII characters.
 */
export async function create(
  c: ServiceRequest,
  store: Store,
  { digest, prepare }: { readonly digest: string; readonly prepare: () => Promise<Creation> },
): Promise<Response> {
  const key = c.env.incoming.headers["idempotency-key"];
  if (key === undefined) return c.json((await carryOut(store, await prepare(), null)) as object);
  if (typeof key !== "string" || !/^[\x21-\x7e]{1,255}$/.test(key)) {
    throw new ArgumentError("Expected the header 'Idempotency-Key' to be 1 to 255 visible ASCII characters", { param: "Idempotency-Key" });
  }
  const route = c.req.path;
  // Says to the client that the key counts: without it, it must not repeat a request whose answer was lost.
  c.header("Idempotency-Key", key);
  const turns = running.get(store) ?? new Map<string, Promise<unknown>>();
  running.set(store, turns);
  const turnKey = `${route} ${key}`;
  const before = turns.get(turnKey);
  const turn = (async () => {
    await before?.catch(() => undefined);
    const known = await findAnswer(store, route, key);
    if (known === undefined) return carryOut(store, await prepare(), { route, key, digest });
    if (known.digest !== digest) {
      throw new ConflictError("This Idempotency-Key was used with another body. Use a new key for a new request", {
        param: "Idempotency-Key",
      });
    }
    return JSON.parse(known.body) as unknown;
  })();
  turns.set(turnKey, turn);
  try {
    return c.json((await turn) as object);
  } finally {
    if (turns.get(turnKey) === turn) turns.delete(turnKey);
  }
}

async function carryOut(
  store: Store,
  creation: Creation,
  answer: { readonly route: string; readonly key: string; readonly digest: string } | null,
): Promise<unknown> {
  let body: unknown;
  try {
    body = await store.transaction().execute(async (transaction) => {
      const made = await creation.commit(transaction);
      if (answer !== null) await rememberAnswer(transaction, { ...answer, status: 200, body: JSON.stringify(made) });
      return made;
    });
  } catch (error) {
    await creation.undo?.();
    throw error;
  }
  creation.afterwards?.();
  return body;
}
