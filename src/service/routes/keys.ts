/** Routes that manage API keys. */
import {
  apiKey,
  apiKeyList,
  createdKey,
  createKeyRequest,
  keyLimits,
  keyQuery,
  rotateKeyRequest,
  type ApiKey,
  type ApiKeyList,
  type CreatedKey,
  type KeyLimits,
  type KeyScope,
} from "../../base/schema/index.ts";
import { readJson, readQuery, type ServiceRequest } from "../http/body.ts";
import { keyStatus, type KeyWithSecret } from "../keys/api-keys.ts";
import { pathParameter, type Route } from "../openapi/route.ts";
import { pageOfKeys } from "../store/api-keys.ts";
import { pageBody } from "../store/paging.ts";
import type { ApiKeyRow } from "../store/team-tables.ts";
import type { RouteContext } from "./context.ts";

const KEYS_PATH = "/v1/preview/keys";
const KEY_PATH = `${KEYS_PATH}/{key_id}`;
const common = { tag: "Service", access: ["admin"], isExtension: true } as const;

/** Converts a key to its form in answers. */
function toWire(row: ApiKeyRow): ApiKey {
  const { id, name, entity, model_id, created_at, expires_at, revoked_at, last_used_at } = row;
  const limits = JSON.parse(row.limits) as KeyLimits;
  const scopes = JSON.parse(row.scopes) as KeyScope[];
  return { id, name, entity, scopes, model_id, status: keyStatus(row), created_at, expires_at, revoked_at, last_used_at, limits };
}

/** Converts a new key, or a key with a new secret: the only answers that have the secret. */
function createdToWire({ row, secret }: KeyWithSecret): CreatedKey {
  return { ...toWire(row), key: secret };
}

/** Creates the routes of API keys: create, list, rotate, limit, revoke. All are extensions of the interface. */
export function keyRoutes(context: RouteContext): Route[] {
  const { keys, work } = context;
  const idOf = (c: ServiceRequest) => pathParameter(c, "key_id");
  return [
    {
      ...common,
      method: "POST",
      path: KEYS_PATH,
      id: "createKey",
      summary: "Create an API key",
      description: "The secret is part of this answer alone. A key of one entity creates keys of the same entity.",
      body: createKeyRequest,
      answer: createdKey,
      errors: [404],
      handle: async (c) => {
        const { value } = await readJson(c, "key", work.bodies);
        return c.json(createdToWire(await keys.create(context.of(c).store, value)));
      },
    },
    {
      ...common,
      method: "GET",
      path: KEYS_PATH,
      id: "listKeys",
      summary: "List API keys, newest first",
      description: "Expired and revoked keys are listed, too. No answer has a secret.",
      query: keyQuery,
      answer: apiKeyList,
      handle: async (c) => {
        const { rows, hasMore } = await pageOfKeys(context.of(c).store, readQuery(c, keyQuery));
        return c.json(pageBody(rows.map(toWire), hasMore) satisfies ApiKeyList);
      },
    },
    {
      ...common,
      method: "POST",
      path: `${KEY_PATH}/rotate`,
      id: "rotateKey",
      summary: "Replace the secret of an API key",
      description: "With `grace_seconds`, the previous secret is accepted for so long. A key that has expired or was revoked answers 409.",
      body: rotateKeyRequest,
      answer: createdKey,
      errors: [409],
      handle: async (c) => {
        const { value } = await readJson(c, "keyRotation", work.bodies);
        return c.json(createdToWire(await keys.rotate(context.of(c).store, idOf(c), value.grace_seconds ?? 0)));
      },
    },
    {
      ...common,
      method: "PUT",
      path: `${KEY_PATH}/limits`,
      id: "limitKey",
      summary: "Replace the limits of an API key",
      description: "A limit that is left out is removed. Other processes of the service apply the limits after at most 5 seconds.",
      body: keyLimits,
      answer: apiKey,
      handle: async (c) => {
        const { value } = await readJson(c, "keyLimits", work.bodies);
        return c.json(toWire(await keys.limit(context.of(c).store, idOf(c), value)));
      },
    },
    {
      ...common,
      method: "DELETE",
      path: KEY_PATH,
      id: "revokeKey",
      summary: "Revoke an API key",
      description: "The key is not accepted from then on; requests that run are answered. Revoking again has no effect.",
      answer: apiKey,
      handle: async (c) => c.json(toWire(await keys.revoke(context.of(c).store, idOf(c)))),
    },
  ];
}
