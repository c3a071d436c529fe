/** Routes of entities: limits and usage. */
import {
  entity,
  entityLimits,
  entityList,
  namePart,
  newestFirstQuery,
  keyUsageList,
  keyUsageQuery,
  type Entity,
  type EntityList,
  type KeyUsageList,
} from "../../base/schema/index.ts";
import { requireValid } from "../../base/util/validation.ts";
import { readJson, readQuery } from "../http/body.ts";
import { requireAdministrator } from "../http/principal.ts";
import { pathParameter, type Route } from "../openapi/route.ts";
import { entityNames, findEntityLimits, setEntityLimits, storedBytesOf } from "../store/entities.ts";
import { liveJobsOf } from "../store/jobs.ts";
import { pageBody, pageOfList } from "../store/paging.ts";
import { recordedUses } from "../store/usage.ts";
import type { Store } from "../store/tables.ts";
import type { RouteContext } from "./context.ts";

const PATH = "/v1/preview/entities";
const common = { tag: "Service", access: ["admin"], isExtension: true } as const;
const MS_PER_DAY = 86_400_000;

/** Creates the routes of entities: list, limit, use. All are extensions of the interface. */
export function entityRoutes(context: RouteContext): Route[] {
  const { quotas, work } = context;
  const describe = async (store: Store, id: string): Promise<Entity> => ({
    id,
    limits: await findEntityLimits(store, id),
    running_choices: quotas.accountOf(id).running,
    queued_jobs: await liveJobsOf(store, id),
    stored_bytes: await storedBytesOf(store, id),
  });
  return [
    {
      ...common,
      method: "GET",
      path: PATH,
      id: "listEntities",
      summary: "List entities with their limits and their use, by name",
      description: "An entity exists once it has a key, a model, an artifact or limits.",
      query: newestFirstQuery,
      answer: entityList,
      async handle(c) {
        const { store } = context.of(c);
        const items = (await entityNames(store)).map((id) => ({ id }));
        const { rows, hasMore } = pageOfList(items, readQuery(c, newestFirstQuery), "an entity");
        const entities: Entity[] = [];
        for (const { id } of rows) entities.push(await describe(store, id));
        return c.json(pageBody(entities, hasMore) satisfies EntityList);
      },
    },
    {
      ...common,
      method: "PUT",
      path: `${PATH}/{entity}/limits`,
      id: "limitEntity",
      summary: "Replace the limits of an entity",
      description:
        "A limit that is left out is removed. Only an administrator of all entities changes limits. Other processes of the service apply them after at most 5 seconds.",
      body: entityLimits,
      answer: entity,
      async handle(c) {
        requireAdministrator(c, "changing the limits of entities");
        const { store } = context.of(c);
        const id = requireValid(namePart, pathParameter(c, "entity"), ["entity"]);
        const { value } = await readJson(c, "entityLimits", work.bodies);
        await setEntityLimits(store, id, value);
        quotas.forget(id);
        return c.json(await describe(store, id));
      },
    },
    {
      ...common,
      method: "GET",
      path: "/v1/preview/usage",
      id: "listUsage",
      summary: "List the daily usage of API keys, the newest day first",
      description: "Other processes of the service record their part once a minute. Requests with the service's own key are not recorded.",
      query: keyUsageQuery,
      answer: keyUsageList,
      async handle(c) {
        const { days, entity: entityId } = readQuery(c, keyUsageQuery);
        const { store } = context.of(c);
        // The answer includes the use of this process up to now.
        await quotas.record();
        const firstDay = new Date(Date.now() - (days - 1) * MS_PER_DAY).toISOString().slice(0, 10);
        const data = await recordedUses(store, { since: firstDay, entity: entityId });
        return c.json({ object: "list", data } satisfies KeyUsageList);
      },
    },
  ];
}
