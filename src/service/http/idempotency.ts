/** Idempotent creation: the header `Idempotency-Key`, and the order of validation, transaction and side effects of a creating route. */
import { ArgumentError, ConflictError } from "../../base/errors.ts";
import type { ServiceRequest } from "./body.ts";
import { findAnswer, rememberAnswer, type KeyedRequest } from "../store/idempotency-keys.ts";
import { UnknownOutcomeError } from "../store/database-errors.ts";
import { transact } from "../store/database.ts";
import type { IdempotencyKeyRow, Store } from "../store/tables.ts";
import { getOrInsert } from "../../base/util/values.ts";
import { visibilityOf } from "../store/visibility.ts";

/** Steps of a creating route after validation: a transaction that writes the rows, then side effects. */
export interface Creation {
  /**
   * Writes the rows and returns the response body. The body is stored in the same transaction, so that after a crash either both exist or
   * neither. May be called again after a conflict with another process, as in `transact`.
   */
  readonly commit: (transaction: Store) => Promise<unknown>;
  /** Runs after the commit. Skipped when a stored response is repeated. */
  readonly afterwards?: (() => void) | undefined;
  /** Undoes the preparation if the commit fails. */
  readonly undo?: (() => Promise<void>) | undefined;
}

/**
 * Answers of running requests, by the store of their entity, and by route and key. Requests with the same key run one after the other: a
 * duplicate waits for the first one, and gets its stored response.
 */
const runningAnswers = new WeakMap<Store, Map<string, Promise<unknown>>>();

/**
 * Answers a creating POST. With the header `Idempotency-Key`, the same key and body get the same response for a day (the last 10 000 keys),
 * also if the created object has changed since. Keys of different entities are different keys.
 *
 * @param store - Store of the request.
 * @param digest - Digest of the request body.
 * @param prepare - Validates and prepares the creation; called only if no response is stored for the key.
 * @throws ConflictError `E_CONFLICT` if the key was used with another body.
 * @throws ArgumentError `E_ARGUMENT` if the key is not 1 to 255 visible ASCII characters.
 */
export async function create(
  c: ServiceRequest,
  store: Store,
  { digest, prepare }: { readonly digest: string; readonly prepare: () => Promise<Creation> },
): Promise<Response> {
  const key = c.env.incoming.headers["idempotency-key"];
  if (key === undefined) return c.json((await execute(store, await prepare(), null)) as object);
  if (typeof key !== "string" || !/^[\x21-\x7e]{1,255}$/.test(key)) {
    throw new ArgumentError("Expected the header 'Idempotency-Key' to be 1 to 255 visible ASCII characters", { param: "Idempotency-Key" });
  }
  const request: KeyedRequest = { entity: visibilityOf(store).entity ?? "", route: c.req.path, key };
  // Echoing the key confirms that it is honored. Without this header, a client must not repeat a request after losing the response.
  c.header("Idempotency-Key", key);
  const answers = getOrInsert(runningAnswers, store, () => new Map<string, Promise<unknown>>());
  const requestKey = `${request.route} ${key}`;
  const previous = answers.get(requestKey);
  const current = (async () => {
    await previous?.catch(() => undefined);
    const stored = await findAnswer(store, request);
    return stored === undefined ? execute(store, await prepare(), { ...request, digest }) : answerOf(stored, digest);
  })();
  answers.set(requestKey, current);
  try {
    return c.json((await current) as object);
  } finally {
    if (answers.get(requestKey) === current) answers.delete(requestKey);
  }
}

/** Returns a stored response body. @throws ConflictError `E_CONFLICT` if its request had another body. */
function answerOf(stored: IdempotencyKeyRow, digest: string): unknown {
  if (stored.digest === digest) return JSON.parse(stored.body);
  throw new ConflictError("This Idempotency-Key was used with another body. Use a new key for a new request", {
    param: "Idempotency-Key",
  });
}

/** Runs the steps of a creation, and stores the response under `answer`; null stores none. Returns the response body. */
async function execute(
  store: Store,
  creation: Creation,
  answer: (KeyedRequest & Pick<IdempotencyKeyRow, "digest">) | null,
): Promise<unknown> {
  let outcome: { readonly body: unknown } | { readonly stored: IdempotencyKeyRow };
  try {
    outcome = await transact(store, async (transaction) => {
      // Another process may have answered the same request meanwhile.
      const stored = answer === null ? undefined : await findAnswer(transaction, answer);
      if (stored !== undefined) return { stored };
      const body = await creation.commit(transaction);
      if (answer !== null) await rememberAnswer(transaction, { ...answer, status: 200, body: JSON.stringify(body) });
      return { body };
    });
  } catch (error) {
    // A creation that may have been committed needs its files. If it was not committed, the next start finds files without a row.
    if (!(error instanceof UnknownOutcomeError)) await creation.undo?.();
    throw error;
  }
  if ("stored" in outcome) {
    await creation.undo?.();
    return answerOf(outcome.stored, answer?.digest ?? "");
  }
  creation.afterwards?.();
  return outcome.body;
}
