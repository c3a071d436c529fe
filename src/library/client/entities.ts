/** The `entities` resource of the client: limits of entities, and the daily usage of their keys. */
import {
  entity as entitySchema,
  entityLimits,
  entityList,
  keyUsage,
  keyUsageList,
  type Entity,
  type KeyUsage,
} from "../../base/schema/index.ts";
import { callJson, type Api, type CallOptions } from "./api.ts";
import type { KeyLimitsInfo } from "./keys.ts";
import { allPages, type ListOptions } from "./pages.ts";
import { parseResponse } from "./options.ts";
import { fromWire, toWire } from "./wire.ts";

/** Limits of an entity, over all of its keys. null or absent = no limit. */
export interface EntityLimitsInfo extends KeyLimitsInfo {
  /** Max training jobs that are queued or running. */
  readonly queuedJobs?: number | null | undefined;
  /** Bytes of artifacts, files and checkpoints. */
  readonly storedBytes?: number | null | undefined;
}

/** An entity: the owner of keys, models and data. */
export interface EntityInfo extends Readonly<Pick<Entity, "id">> {
  /** Limits of the entity; null for each that it does not have. */
  readonly limits: EntityLimitsInfo;
  /** Choices that the answering process samples now for keys of the entity. */
  readonly runningChoices: number;
  /** Number of training jobs that are queued or running. */
  readonly queuedJobs: number;
  /** Recorded bytes of artifacts, files and checkpoints. */
  readonly storedBytes: number;
}

/** Requests and tokens of a key on one day. */
export interface KeyUsageInfo extends Readonly<Pick<KeyUsage, "day" | "entity" | "requests">> {
  /** `key:` and the id of the key, or `sessions:` and the entity of sessions. */
  readonly keyId: string;
  /** Tokens of the prompts of the requests. */
  readonly promptTokens: number;
  /** Tokens sampled in answers to the requests. */
  readonly generatedTokens: number;
}

/** Days and entity of the use that `entities.usage` returns. */
export interface UsageOptions extends CallOptions {
  /** Days up to today, in UTC, 1 to 366. @default 30 */
  readonly days?: number | undefined;
  /** Only keys of this entity. @default all that the key in use may see */
  readonly entity?: string | undefined;
}

/**
 * The `entities` resource (an extension): limits of entities, and the daily usage of their keys. Requires a key with the scope `admin`; only an
 * administrator of all entities changes limits.
 *
 * @example
 * ```ts
 * await service.entities.setLimits("search-team", { tokensPerMinute: 100_000, queuedJobs: 4, storedBytes: 50e9 });
 * for (const { day, keyId, generatedTokens } of await service.entities.usage({ days: 7 })) console.log(day, keyId, generatedTokens);
 * ```
 */
export interface Entities {
  /**
   * Lists the entities that the key may see, with their limits and their use, fetching all pages.
   *
   * @param options - Number, signal and time limit.
   * @returns the entities, by name.
   * @throws HttpError `E_HTTP` for an error status, 403 without the scope `admin`.
   * @throws ConnectionError `E_CONNECTION` without a complete response; ProtocolError `E_PROTOCOL` for an invalid response.
   * @example
   * ```ts
   * const full = (await service.entities.list()).filter(({ limits, storedBytes }) => storedBytes >= (limits.storedBytes ?? Infinity));
   * ```
   */
  list(options?: ListOptions): Promise<EntityInfo[]>;
  /**
   * Replaces the limits of an entity. A limit that is left out is removed.
   *
   * @param name - Name of the entity; need not exist yet.
   * @param limits - New limits.
   * @param options - Signal and time limit.
   * @returns the changed entity.
   * @throws HttpError `E_HTTP` for an error status, 403 for a key of one entity.
   * @throws ConnectionError `E_CONNECTION` without a complete response; ProtocolError `E_PROTOCOL` for an invalid response.
   */
  setLimits(name: string, limits: EntityLimitsInfo, options?: CallOptions): Promise<EntityInfo>;
  /**
   * Returns the daily usage of keys, recorded once a minute. Requests with the service's own key are not recorded.
   *
   * @param options - Days, entity, signal and time limit.
   * @returns one entry per key and day, the newest day first; at most 10,000.
   * @throws HttpError `E_HTTP` for an error status, 403 without the scope `admin`.
   * @throws ConnectionError `E_CONNECTION` without a complete response; ProtocolError `E_PROTOCOL` for an invalid response.
   */
  usage(options?: UsageOptions): Promise<KeyUsageInfo[]>;
}

const PATH = "/v1/preview/entities";

/** Validates an entity and converts it from its wire form, its limits included. */
function toEntity(answer: unknown): EntityInfo {
  const wire = parseResponse(entitySchema, answer, "entity");
  // `fromWire` converts only the names of the entity's own fields, not of the fields of its limits.
  return { ...fromWire(entitySchema, wire), limits: fromWire(entityLimits, wire.limits) };
}

/** Creates the `entities` resource of a connection. */
export function entitiesResource(api: Api): Entities {
  return {
    async list(options = {}) {
      return (await allPages(api, PATH, { schema: entityList, query: {}, itemsName: "entities" }, options)).map(toEntity);
    },
    async setLimits(name, limits, options = {}) {
      const request = { json: toWire(entityLimits, { ...limits }), ...options };
      return toEntity(await callJson(api, "PUT", `${PATH}/${encodeURIComponent(name)}/limits`, request));
    },
    async usage({ days, entity, ...options } = {}) {
      const answer = await callJson(api, "GET", "/v1/preview/usage", { ...options, query: { days, entity } });
      return parseResponse(keyUsageList, answer, "use of keys").data.map((each) => fromWire(keyUsage, each));
    },
  };
}
