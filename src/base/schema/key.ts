/** Schemas of API keys. "Extension" marks routes and fields that this service adds to the interface that it implements. */

import { z } from "zod";
import { listOf, namePart, newestFirstQuery, uuid } from "./common.ts";

/** Schema of {@link KeyScope}. */
export const keyScope = z.literal(["admin", "train", "sample", "read"]);
/**
 * Right of an API key. `read` lists and reads, `sample` samples and keeps sessions and responses, `train` creates, changes and deletes
 * models, training jobs and data; `admin` permits everything, and the management of keys.
 */
export type KeyScope = z.infer<typeof keyScope>;

/** Schema of a limit: at least 1; null or absent = no limit. */
const limit = z.int().min(1).nullish();

/** Schema of {@link KeyLimits}. */
export const keyLimits = z.strictObject({
  /** Chat completions per minute, of every dialect. @default null: no limit */
  requests_per_minute: limit,
  /** Tokens of prompts and answers per minute. A request is admitted while some are left, and charged with all that it uses. @default null: no limit */
  tokens_per_minute: limit,
  /** Choices that are sampled at a time. @default null: no limit */
  running_choices: limit,
});
/** Limits of an API key. Each process of a service has its own count. Extension. @interface */
export type KeyLimits = z.infer<typeof keyLimits>;

/** Schema of {@link EntityLimits}. */
export const entityLimits = keyLimits.extend({
  /** Unfinished training jobs. @default null: no limit */
  queued_jobs: limit,
  /** Bytes of artifacts, files and checkpoints. @default null: no limit */
  stored_bytes: limit,
});
/** Limits of an entity, over all of its API keys. Extension. @interface */
export type EntityLimits = z.infer<typeof entityLimits>;

/** Schema of {@link CreateKeyRequest}. */
export const createKeyRequest = z.strictObject({
  /** Name of the key for its owner, such as the program that uses it; max 128 characters. */
  name: z.string().min(1).max(128),
  /**
   * Entity that the key belongs to: the key has access to no row of another one. null = every entity, only for a key with the scope `admin`.
   *
   * @default the entity of the key that authenticates the request; "local" for a key that belongs to none
   */
  entity: namePart.nullish(),
  /** Rights that the key has on routes. @default ["train", "sample", "read"] */
  scopes: z
    .array(keyScope)
    .min(1)
    .refine((scopes) => new Set(scopes).size === scopes.length, "must not have the same scope twice")
    .nullish(),
  /** UUID of the only model that the key has access to, with its jobs, checkpoints and sessions. @default null: all models of the entity */
  model_id: uuid.nullish(),
  /** Seconds after the creation at which the key expires, at most ten years. @default null: never */
  expires_in_seconds: z.int().min(1).max(315_360_000).nullish(),
  /** Limits of the key; the limits of its entity also apply. @default none */
  limits: keyLimits.nullish(),
});
/** Body of `POST /v1/preview/keys`. Extension. @interface */
export type CreateKeyRequest = z.infer<typeof createKeyRequest>;

/** Schema of {@link RotateKeyRequest}. */
export const rotateKeyRequest = z.strictObject({
  /** Seconds for which the previous secret is accepted besides the new one, at most 30 days. @default 0 */
  grace_seconds: z.int().min(0).max(2_592_000).nullish(),
});
/** Body of `POST /v1/preview/keys/{key_id}/rotate`. Extension. @interface */
export type RotateKeyRequest = z.infer<typeof rotateKeyRequest>;

/** Schema of {@link ApiKey}. */
export const apiKey = z.object({
  /** UUID that addresses the key in routes; not the secret. */
  id: uuid,
  /** Name as given at the creation, such as the program that uses the key. */
  name: z.string(),
  /** Entity that the key belongs to; null = every entity. */
  entity: z.string().nullable(),
  /** Rights that the key has on routes. */
  scopes: z.array(keyScope),
  /** UUID of the only model that the key has access to; null = all models of the entity. */
  model_id: uuid.nullable(),
  /** State of the key. An expired or revoked key is never accepted again. */
  status: z.literal(["active", "expired", "revoked"]),
  /** Creation time, ISO 8601. */
  created_at: z.string(),
  /** Time from which the key is not accepted, ISO 8601; null = never. */
  expires_at: z.string().nullable(),
  /** Time of the revocation, ISO 8601; null for a key that was not revoked. */
  revoked_at: z.string().nullable(),
  /** Time of a recent request with the key, recorded once a minute; null for a key that was never used. */
  last_used_at: z.string().nullable(),
  /** Limits of the key; empty without any. */
  limits: keyLimits,
});
/** API key without its secret. Extension. @interface */
export type ApiKey = z.infer<typeof apiKey>;

/** Schema of {@link CreatedKey}. */
export const createdKey = apiKey.extend({
  /** Secret that clients send, `wsk_` and 43 characters. The service stores its hash and returns it only here. */
  key: z.string(),
});
/** Created or rotated API key. Extension. @interface */
export type CreatedKey = z.infer<typeof createdKey>;

/** Schema of {@link ApiKeyList}. */
export const apiKeyList = listOf(apiKey);
/** Page of API keys, newest first. Extension. @interface */
export type ApiKeyList = z.infer<typeof apiKeyList>;

/** Schema of {@link KeyQuery}. */
export const keyQuery = newestFirstQuery.extend({
  /** Only keys of this entity. @default all that the key may see */
  entity: namePart.optional(),
});
/** Query parameters of `GET /v1/preview/keys`. Extension. @interface */
export type KeyQuery = z.infer<typeof keyQuery>;

/** Schema of {@link Entity}. */
export const entity = z.object({
  /** Name of the entity. */
  id: namePart,
  /** Limits of the entity; empty without any. */
  limits: entityLimits,
  /** Choices that the answering process samples now for keys of the entity. */
  running_choices: z.int(),
  /** Unfinished training jobs. */
  queued_jobs: z.int(),
  /** Recorded bytes of artifacts, files and checkpoints. */
  stored_bytes: z.int(),
});
/** Entity: the owner of keys, models and data. Extension. @interface */
export type Entity = z.infer<typeof entity>;

/** Schema of {@link EntityList}. */
export const entityList = listOf(entity);
/** Page of entities, in the order of their names. Extension. @interface */
export type EntityList = z.infer<typeof entityList>;

/** Schema of {@link KeyUsageQuery}. */
export const keyUsageQuery = z.strictObject({
  /** Days up to today, in UTC, 1 to 366. @default 30 */
  days: z.coerce.number().int().min(1).max(366).default(30),
  /** Only keys of this entity. @default all that the key may see */
  entity: namePart.optional(),
});
/** Query parameters of `GET /v1/preview/usage`. Extension. @interface */
export type KeyUsageQuery = z.infer<typeof keyUsageQuery>;

/** Schema of {@link KeyUsage}. */
export const keyUsage = z.object({
  /** Day in UTC, `YYYY-MM-DD`. */
  day: z.string(),
  /** Entity of the key; empty for a key of all entities. */
  entity: z.string(),
  /** `key:` and the id of the key, or `sessions:` and the entity of sessions. */
  key_id: z.string(),
  /** Ended chat completions. */
  requests: z.int(),
  /** Tokens of their prompts. */
  prompt_tokens: z.int(),
  /** Sampled tokens. */
  generated_tokens: z.int(),
});
/** Use of a key on a day, recorded once a minute. Extension. @interface */
export type KeyUsage = z.infer<typeof keyUsage>;

/** Schema of {@link KeyUsageList}. */
export const keyUsageList = z.object({
  /** Type of the object in the wire format. */
  object: z.literal("list").default("list"),
  /** The newest day first; at most 10,000 entries. */
  data: z.array(keyUsage),
});
/** Use of the service by keys and days. Extension. @interface */
export type KeyUsageList = z.infer<typeof keyUsageList>;
