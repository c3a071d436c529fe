/** API keys that administrators create: authentication, creation, rotation and revocation. */
import { randomUUID } from "node:crypto";
import { ArgumentError, ConflictError, ForbiddenError } from "../../base/errors.ts";
import type { CreateKeyRequest, KeyLimits, KeyScope } from "../../base/schema/index.ts";
import { Lru } from "../../base/util/lru.ts";
import { logFailure, type ServiceLogger } from "../common/logger.ts";
import { recordEvery } from "../common/repeat.ts";
import type { Authentication } from "../http/auth.ts";
import type { Principal } from "../http/principal.ts";
import { findKeyByHash, insertKey, recordUses, updateKey } from "../store/api-keys.ts";
import { getModel } from "../store/models.ts";
import type { Store } from "../store/tables.ts";
import type { ApiKeyRow } from "../store/team-tables.ts";
import { entityFor, visibilityOf } from "../store/visibility.ts";
import { createSecret, hashSecret, isSecret } from "./secrets.ts";

/** Max keys in memory. */
const MAX_CACHED_KEYS = 10_000;
/** Milliseconds for which a key in memory is used without reading its row. Other services on the same database may change the row. */
const MAX_AGE_MS = 5000;
/** Milliseconds between two records of the times of use. */
const USE_INTERVAL_MS = 60_000;
/** Scopes of a key that is created without scopes. */
const DEFAULT_SCOPES: readonly KeyScope[] = ["train", "sample", "read"];

/** Key with its secret, which exists only in the answer to its creation or rotation. */
export interface KeyWithSecret {
  readonly row: ApiKeyRow;
  readonly secret: string;
}

/** API keys of a service. */
export class ApiKeys {
  readonly #store: Store;
  /** Rows of keys by the hash of a secret. */
  readonly #cachedRows = new Lru<string, { readonly row: ApiKeyRow; readonly readAtMs: number }>({ maxEntries: MAX_CACHED_KEYS });
  /** Number of changes by this process. A row that was read during a change is not cached, because it may be the old one. */
  #changes = 0;
  /** Times of the last use that are not recorded yet, by id. */
  #pendingUses = new Map<string, string>();

  constructor(store: Store) {
    this.#store = store;
  }

  /** Returns the principal of a secret, or the reason of its rejection; null for another credential. */
  async authenticate(secret: string): Promise<Authentication | null> {
    if (!isSecret(secret)) return null;
    const hash = hashSecret(secret);
    const row = await this.#find(hash);
    if (row === undefined) return null;
    const now = new Date().toISOString();
    const reason = reasonAgainst(row, hash, now);
    if (reason !== null) return { status: 401, reason: `The API key '${row.name}' ${reason}. Ask an administrator for another` };
    this.#pendingUses.set(row.id, now);
    return principalOfKey(row);
  }

  /**
   * Creates a key.
   *
   * @param store - Store of the request: a key for one entity creates keys for this entity alone.
   * @throws ForbiddenError `E_FORBIDDEN` for another entity than the caller's.
   * @throws ArgumentError `E_ARGUMENT` for a key of all entities without the scope `admin`, and for an administrator of one model.
   * @throws NotFoundError `E_NOT_FOUND` if the entity has no model `model_id`.
   */
  async create(store: Store, request: CreateKeyRequest): Promise<KeyWithSecret> {
    const { name, scopes, model_id: model, expires_in_seconds: seconds } = request;
    const grantedScopes = scopes ?? DEFAULT_SCOPES;
    const entity = requestedEntity(store, request, grantedScopes);
    if (typeof model === "string") await requireModelOf(store, { model, entity, scopes: grantedScopes });
    const now = Date.now();
    const secret = createSecret();
    const row: ApiKeyRow = {
      id: randomUUID(),
      name,
      entity,
      scopes: JSON.stringify(grantedScopes),
      model_id: model?.toLowerCase() ?? null,
      hash: hashSecret(secret),
      previous_hash: null,
      previous_until: null,
      created_at: new Date(now).toISOString(),
      expires_at: typeof seconds === "number" ? new Date(now + seconds * 1000).toISOString() : null,
      revoked_at: null,
      last_used_at: null,
      limits: JSON.stringify(request.limits ?? {}),
    };
    await insertKey(this.#store, row);
    return { row, secret };
  }

  /**
   * Replaces the secret of a key.
   *
   * @param graceSeconds - Seconds for which the previous secret is accepted, too.
   * @throws ConflictError `E_CONFLICT` for a key that has expired or was revoked.
   */
  async rotate(store: Store, id: string, graceSeconds: number): Promise<KeyWithSecret> {
    const secret = createSecret();
    const row = await this.#change(store, id, (current) => {
      const status = keyStatus(current);
      if (status !== "active")
        throw new ConflictError(`API key '${current.id}' is ${status} and cannot be rotated. Create another key`, { param: "key_id" });
      const until = new Date(Date.now() + graceSeconds * 1000).toISOString();
      return { hash: hashSecret(secret), previous_hash: current.hash, previous_until: until };
    });
    return { row, secret };
  }

  /** Replaces the limits of a key. */
  limit(store: Store, id: string, limits: KeyLimits): Promise<ApiKeyRow> {
    return this.#change(store, id, () => ({ limits: JSON.stringify(limits) }));
  }

  /** Revokes a key: it is never accepted again. Has no effect on a revoked key. */
  revoke(store: Store, id: string): Promise<ApiKeyRow> {
    return this.#change(store, id, ({ revoked_at: revoked }) => (revoked === null ? { revoked_at: new Date().toISOString() } : {}));
  }

  /** Records the times of use every minute. Returns a function that stops, after the last times are recorded. */
  startRecording(logger: ServiceLogger): () => Promise<void> {
    return recordEvery(
      () => this.#recordUses().catch(logFailure(logger, "The times of the last use of API keys could not be recorded")),
      USE_INTERVAL_MS,
    );
  }

  /** Records the times of use since the last record. */
  async #recordUses(): Promise<void> {
    if (this.#pendingUses.size === 0) return;
    const uses = this.#pendingUses;
    this.#pendingUses = new Map();
    // Cached rows keep the earlier times, which authentication does not need.
    await recordUses(this.#store, uses).catch((error: unknown) => {
      // The next attempt records them, except for keys that were used again meanwhile.
      this.#pendingUses = new Map([...uses, ...this.#pendingUses]);
      throw error;
    });
  }

  /** Returns the row of the key with a hash, from memory for up to {@link MAX_AGE_MS}; undefined for an unknown one. */
  async #find(hash: string): Promise<ApiKeyRow | undefined> {
    const cached = this.#cachedRows.get(hash);
    const nowMs = performance.now();
    if (cached !== undefined && nowMs - cached.readAtMs < MAX_AGE_MS) return cached.row;
    const changes = this.#changes;
    const row = await findKeyByHash(this.#store, hash);
    if (row !== undefined && changes === this.#changes) this.#cachedRows.set(hash, { row, readAtMs: nowMs });
    return row;
  }

  /** Changes a key. Forgets the rows in memory also after an error, because the change may have been committed nevertheless. */
  async #change(store: Store, id: string, change: (row: ApiKeyRow) => Partial<ApiKeyRow>): Promise<ApiKeyRow> {
    try {
      return await updateKey(store, id, change);
    } finally {
      this.#changes++;
      this.#cachedRows.clear();
    }
  }
}

/** Returns the status of a key. */
export function keyStatus({ revoked_at: revoked, expires_at: expires }: ApiKeyRow): "active" | "expired" | "revoked" {
  if (revoked !== null) return "revoked";
  return expires !== null && expires <= new Date().toISOString() ? "expired" : "active";
}

/** Returns the reason why a secret of a key is not accepted, after "The API key …"; null if it is accepted. */
function reasonAgainst(row: ApiKeyRow, hash: string, now: string): string | null {
  const { revoked_at: revoked, expires_at: expires, previous_until: until } = row;
  if (revoked !== null) return `was revoked at ${revoked}`;
  if (expires !== null && expires <= now) return `expired at ${expires}`;
  if (row.hash !== hash && (until === null || until <= now))
    return `has another secret since its rotation; this one was accepted until ${until}`;
  return null;
}

/**
 * Returns the principal of a key. The keys of an entity share its stored responses, so that they outlive a rotation; a key for all entities
 * or for one model has its own.
 */
function principalOfKey({ id, entity, model_id: modelId, scopes, limits }: ApiKeyRow): Principal {
  const owner = entity === null || modelId !== null ? `key:${id}` : `entity:${entity}`;
  return {
    id: `key:${id}`,
    visibility: { entity, modelId },
    scopes: JSON.parse(scopes) as KeyScope[],
    owner,
    sessionKey: null,
    limits: JSON.parse(limits) as KeyLimits,
  };
}

/** Returns the entity of a new key; null for all entities. */
function requestedEntity(store: Store, request: CreateKeyRequest, scopes: readonly KeyScope[]): string | null {
  if (request.entity !== null) return entityFor(store, request.entity, "entity");
  const { entity } = visibilityOf(store);
  if (entity !== null)
    throw new ForbiddenError(
      `Expected the entity '${entity}', which the API key belongs to, got null. An administrator of the service creates keys for all entities`,
      {
        param: "entity",
      },
    );
  if (!scopes.includes("admin"))
    throw new ArgumentError("Expected the scope `admin` for a key of all entities (`entity: null`). Name the entity of other keys", {
      param: "scopes",
    });
  return null;
}

/** Checks that a key may be limited to a model: it is no administrator, and the model belongs to its entity. */
async function requireModelOf(
  store: Store,
  { model, entity, scopes }: { readonly model: string; readonly entity: string | null; readonly scopes: readonly KeyScope[] },
): Promise<void> {
  if (scopes.includes("admin"))
    throw new ArgumentError("Expected no `model_id` for a key with the scope `admin`, which manages the keys of all models", {
      param: "model_id",
    });
  const foundModel = await getModel(store, model);
  if (foundModel.entity !== entity)
    throw new ArgumentError(`Expected \`model_id\` to be a model of the entity '${entity}', got one of '${foundModel.entity}'`, {
      param: "model_id",
    });
}
