/**
 * Idempotent creation: runs validation, transaction and side effects of a creating route in this order, and repeats the stored response for
 * a repeated `Idempotency-Key`.
 */
import { ArgumentError, ConflictError } from "../../base/errors.ts";
import type { ServiceRequest } from "./body.ts";
import { findAnswer, rememberAnswer, type KeyedRequest } from "../store/idempotency-keys.ts";
import { UnknownOutcomeError } from "../store/database-errors.ts";
import { transact } from "../store/database.ts";
import type { IdempotencyKeyRow, Store } from "../store/tables.ts";
import { getOrInsert } from "../../base/util/values.ts";
import { visibilityOf } from "../store/visibility.ts";

/** Steps of a creating route after its preparation: a transaction that writes the rows, then side effects. */
export interface Creation {
  /**
   * Writes the rows and returns the response body. With a key, the body is stored in the same transaction, so that after a crash either
   * both exist or neither. May be called again after a conflict with another process, as in `transact`.
   */
  readonly commit: (transaction: Store) => Promise<unknown>;
  /** Runs after the commit. Not called if the response is a stored one. */
  readonly afterwards?: (() => void) | undefined;
  /**
   * Undoes the preparation if nothing was committed: the transaction failed, or another process has stored a response for the key since the
   * preparation. Not called if the outcome of the transaction is unknown.
   */
  readonly undo?: (() => Promise<void>) | undefined;
}

/** Request with an idempotency key and the digest of its body. */
type KeyedBody = KeyedRequest & Pick<IdempotencyKeyRow, "digest">;

/**
 * Last running request by store, and by route and key. A store belongs to one entity, or to one model of an entity if the API key is
 * restricted to it. Each request waits for the previous request with its key, and then finds the stored response.
 */
const runningRequests = new WeakMap<Store, Map<string, Promise<unknown>>>();

/**
 * Answers a creating POST. A request with the header `Idempotency-Key` gets the response of the first request with this key, also if the
 * created object has changed since, as long as that response is stored: for a day, and among the last 10 000. Keys are distinguished by
 * entity and route. A request without the header always creates.
 *
 * @param store - Store of the request.
 * @param options - `digest`: digest of the request body. `prepare`: validates and prepares the creation; called only if no response is
 *   stored for the key.
 * @throws ConflictError `E_CONFLICT` if the key was used with another body.
 * @throws ArgumentError `E_ARGUMENT` if the key is not 1 to 255 visible ASCII characters.
 */
export async function createOnce(
  c: ServiceRequest,
  store: Store,
  { digest, prepare }: { readonly digest: string; readonly prepare: () => Promise<Creation> },
): Promise<Response> {
  const key = c.env.incoming.headers["idempotency-key"];
  if (key === undefined) return c.json((await runCreation(store, await prepare(), null)) as object);
  if (typeof key !== "string" || !/^[\x21-\x7e]{1,255}$/.test(key)) {
    throw new ArgumentError("Expected the header 'Idempotency-Key' to be 1 to 255 visible ASCII characters", { param: "Idempotency-Key" });
  }
  const request: KeyedRequest = { entity: visibilityOf(store).entity ?? "", route: c.req.path, key };
  // The repeated header shows that the service supports keys. Of other services, a client must not repeat a request whose response is lost.
  c.header("Idempotency-Key", key);
  const running = getOrInsert(runningRequests, store, () => new Map<string, Promise<unknown>>());
  const body = await afterPrevious(running, `${request.route} ${key}`, async () => {
    const stored = await findAnswer(store, request);
    return stored === undefined ? runCreation(store, await prepare(), { ...request, digest }) : bodyOf(stored, digest);
  });
  return c.json(body as object);
}

/** Runs `work` once the previous call with the same key has ended, also if that call has failed. */
async function afterPrevious<T>(running: Map<string, Promise<unknown>>, key: string, work: () => Promise<T>): Promise<T> {
  const previous = running.get(key);
  const current = (async () => {
    await previous?.catch(() => undefined);
    return work();
  })();
  running.set(key, current);
  try {
    return await current;
  } finally {
    if (running.get(key) === current) running.delete(key);
  }
}

/** Returns the body of a stored response. @throws ConflictError `E_CONFLICT` if the body of its request had another digest. */
function bodyOf(stored: IdempotencyKeyRow, digest: string): unknown {
  if (stored.digest === digest) return JSON.parse(stored.body);
  throw new ConflictError("This Idempotency-Key was used with another body. Use a new key for a new request", {
    param: "Idempotency-Key",
  });
}

/**
 * Runs the steps of a creation and returns the response body.
 *
 * @param keyed - Request under whose key the response is stored; null for a request without a key, whose response is not stored.
 * @throws ConflictError `E_CONFLICT` if another process has meanwhile answered a request with the same key and another body.
 */
async function runCreation(store: Store, creation: Creation, keyed: KeyedBody | null): Promise<unknown> {
  let result: { readonly body: unknown; readonly isStored: boolean };
  try {
    result = await transact(store, async (transaction) => {
      if (keyed === null) return { body: await creation.commit(transaction), isStored: false };
      // Another process may have answered the same request meanwhile.
      const stored = await findAnswer(transaction, keyed);
      if (stored !== undefined) return { body: bodyOf(stored, keyed.digest), isStored: true };
      const body = await creation.commit(transaction);
      await rememberAnswer(transaction, { ...keyed, status: 200, body: JSON.stringify(body) });
      return { body, isStored: false };
    });
  } catch (error) {
    // With an unknown outcome the rows may exist, and then need the prepared files. If they do not, the next start quarantines the files.
    if (!(error instanceof UnknownOutcomeError)) await creation.undo?.();
    throw error;
  }
  if (result.isStored) await creation.undo?.();
  else creation.afterwards?.();
  return result.body;
}
