/** The `keys` resource of the client: API keys with scopes, limits and an expiry. */
import type { z } from "zod";
import {
  apiKey,
  apiKeyList,
  createdKey,
  createKeyRequest,
  keyLimits,
  rotateKeyRequest,
  type ApiKey as WireKey,
  type KeyScope,
} from "../../base/schema/index.ts";
import { callJson, type Api, type CallOptions } from "./api.ts";
import { allPages, type ListOptions } from "./pages.ts";
import { parseResponse } from "./options.ts";
import { fromWire, toWire } from "./wire.ts";

/** An API key without its secret. */
export interface KeyInfo extends Readonly<Pick<WireKey, "id" | "name" | "status">> {
  /** Entity that the key belongs to; null = every entity. */
  readonly entity: string | null;
  /** Rights that the key has on routes. */
  readonly scopes: readonly KeyScope[];
  /** UUID of the only model that the key has access to; null = all models of the entity. */
  readonly modelId: string | null;
  /** Creation time, ISO 8601. */
  readonly createdAt: string;
  /** Time from which the key is not accepted, ISO 8601; null = never. */
  readonly expiresAt: string | null;
  /** Time of the revocation, ISO 8601; null for a key that was not revoked. */
  readonly revokedAt: string | null;
  /** Time of a recent request with the key, ISO 8601, recorded once a minute; null for a key that was never used. */
  readonly lastUsedAt: string | null;
  /** Limits of the key; null for each that it does not have. */
  readonly limits: KeyLimitsInfo;
}

/** Limits of a key. null or absent = no limit. Each process of a service has its own count. */
export interface KeyLimitsInfo {
  /** Chat completions per minute, of every dialect. */
  readonly requestsPerMinute?: number | null | undefined;
  /** Tokens of prompts and answers per minute. A request is admitted while some are left, and charged with all that it uses. */
  readonly tokensPerMinute?: number | null | undefined;
  /** Choices that are sampled at a time. */
  readonly runningChoices?: number | null | undefined;
}

/** A key that was just created or rotated, with its secret. */
export interface CreatedKeyInfo extends KeyInfo {
  /** Secret that clients send as their API key. No other call returns it. */
  readonly key: string;
}

/** Owner, rights and lifetime of the key that `keys.create` creates. */
export interface CreateKeyOptions extends CallOptions {
  /** Name of the key, such as the program that uses it; max 128 characters. */
  readonly name: string;
  /** Entity that the key belongs to; null = every entity, only with the scope `admin`. @default the entity of the key in use, or "local" */
  readonly entity?: string | null | undefined;
  /** Rights that the key has on routes. @default ["train", "sample", "read"] */
  readonly scopes?: readonly KeyScope[] | undefined;
  /** UUID of the only model that the key has access to. @default all models of the entity */
  readonly modelId?: string | undefined;
  /** Seconds after the creation at which the key expires, at most ten years. @default never */
  readonly expiresInSeconds?: number | undefined;
  /** Limits of the key; the limits of its entity also apply. @default none */
  readonly limits?: KeyLimitsInfo | undefined;
}

/** Grace period of the previous secret, which `keys.rotate` replaces. */
export interface RotateKeyOptions extends CallOptions {
  /** Seconds for which the previous secret is accepted besides the new one, at most 30 days. @default 0 */
  readonly graceSeconds?: number | undefined;
}

/** Filters and number of the keys that `keys.list` returns. */
export interface ListKeysOptions extends ListOptions {
  /** Only keys of this entity. @default all that the key in use may see */
  readonly entity?: string | undefined;
}

/**
 * The `keys` resource (an extension): API keys with scopes, each bound to an entity. Requires a key with the scope `admin`.
 *
 * @example
 * ```ts
 * const { id, key } = await service.keys.create({ name: "agents", entity: "search-team", scopes: ["sample"] });
 * console.log(key); // shown once
 * await service.keys.rotate(id, { graceSeconds: 3600 });
 * await service.keys.revoke(id);
 * ```
 */
export interface Keys {
  /**
   * Creates a key. A repeated request after a lost response may leave an unused key, which `keys.list` shows.
   *
   * @param options - Name, owner, rights, lifetime, signal and time limit.
   * @returns the key with its secret.
   * @throws HttpError `E_HTTP` for an error status: 403 without the scope `admin` and for another entity, 404 for an unknown model.
   * @throws ConnectionError `E_CONNECTION` without a complete response; ProtocolError `E_PROTOCOL` for an invalid response.
   */
  create(options: CreateKeyOptions): Promise<CreatedKeyInfo>;
  /**
   * Lists keys, also expired and revoked ones, fetching all pages.
   *
   * @param options - Entity, number, signal and time limit.
   * @returns the keys, newest first.
   * @throws HttpError `E_HTTP` for an error status, 403 without the scope `admin`.
   * @throws ConnectionError `E_CONNECTION` without a complete response; ProtocolError `E_PROTOCOL` for an invalid response.
   */
  list(options?: ListKeysOptions): Promise<KeyInfo[]>;
  /**
   * Replaces the secret of a key.
   *
   * @param keyId - ID of the key.
   * @param options - Time for which the previous secret is accepted, signal and time limit.
   * @returns the key with its new secret.
   * @throws HttpError `E_HTTP` for an error status, 409 for a key that has expired or was revoked.
   * @throws ConnectionError `E_CONNECTION` without a complete response; ProtocolError `E_PROTOCOL` for an invalid response.
   */
  rotate(keyId: string, options?: RotateKeyOptions): Promise<CreatedKeyInfo>;
  /**
   * Replaces the limits of a key. A limit that is left out is removed.
   *
   * @param keyId - ID of the key.
   * @param limits - New limits.
   * @param options - Signal and time limit.
   * @returns the changed key.
   * @throws HttpError `E_HTTP` for an error status, 403 without the scope `admin`.
   * @throws ConnectionError `E_CONNECTION` without a complete response; ProtocolError `E_PROTOCOL` for an invalid response.
   * @example
   * ```ts
   * await service.keys.setLimits("181f0f0b-610f-4006-aece-3bff0adbc94e", { requestsPerMinute: 600, runningChoices: 64 });
   * ```
   */
  setLimits(keyId: string, limits: KeyLimitsInfo, options?: CallOptions): Promise<KeyInfo>;
  /**
   * Revokes a key: it is not accepted from then on. Has no effect on a revoked key.
   *
   * @param keyId - ID of the key.
   * @param options - Signal and time limit.
   * @returns the revoked key.
   * @throws HttpError `E_HTTP` for an error status.
   * @throws ConnectionError `E_CONNECTION` without a complete response; ProtocolError `E_PROTOCOL` for an invalid response.
   */
  revoke(keyId: string, options?: CallOptions): Promise<KeyInfo>;
}

const PATH = "/v1/preview/keys";

/** Validates a key and converts it from its wire form, its limits included. */
function toKey<S extends typeof apiKey.shape>(schema: z.ZodObject<S>, answer: unknown) {
  const wire = parseResponse(schema, answer, "API key");
  // `fromWire` converts only the names of the key's own fields, not of the fields of its limits.
  return { ...fromWire(schema, wire), limits: fromWire(keyLimits, (wire as z.output<typeof apiKey>).limits) };
}

/** Creates the `keys` resource of a connection. */
export function keysResource(api: Api): Keys {
  const pathOf = (keyId: string): string => `${PATH}/${encodeURIComponent(keyId)}`;
  return {
    async create({ signal, timeoutMs, scopes, limits, ...options }) {
      const fields = toWire(createKeyRequest, { ...options, scopes: scopes?.slice() });
      const json = limits === undefined ? fields : { ...fields, limits: toWire(keyLimits, { ...limits }) };
      return toKey(createdKey, await callJson(api, "POST", PATH, { json, signal, timeoutMs, retry: "unsent" }));
    },
    async list({ entity, ...options } = {}) {
      const list = { schema: apiKeyList, query: { entity }, itemsName: "API keys" };
      return (await allPages(api, PATH, list, options)).map((each) => toKey(apiKey, each));
    },
    async rotate(keyId, { signal, timeoutMs, ...options } = {}) {
      const request = { json: toWire(rotateKeyRequest, options), signal, timeoutMs, retry: "unsent" } as const;
      return toKey(createdKey, await callJson(api, "POST", `${pathOf(keyId)}/rotate`, request));
    },
    async setLimits(keyId, limits, options = {}) {
      const request = { json: toWire(keyLimits, { ...limits }), ...options };
      return toKey(apiKey, await callJson(api, "PUT", `${pathOf(keyId)}/limits`, request));
    },
    async revoke(keyId, options = {}) {
      return toKey(apiKey, await callJson(api, "DELETE", pathOf(keyId), options));
    },
  };
}
