/** Routes of upstream servers, which sample some base models instead of the engine. */
import { NotFoundError } from "../../base/errors.ts";
import { drainUpstreamRequest, upstreamServerList, type UpstreamServerList } from "../../base/schema/index.ts";
import type { PooledServer } from "../../engine/upstream/pool.ts";
import { readJson } from "../http/body.ts";
import { requireAdministrator } from "../http/principal.ts";
import type { Route } from "../openapi/route.ts";
import type { RouteContext } from "./context.ts";

const common = { path: "/v1/preview/upstreams", tag: "Service", access: ["admin"], isExtension: true, answer: upstreamServerList } as const;

/** Creates `GET` and `PUT /v1/preview/upstreams`, which list and drain the servers that sample instead of the engine. */
export function upstreamRoutes({ upstream, work }: RouteContext): Route[] {
  const list = (): UpstreamServerList => ({
    object: "list",
    data: (upstream?.servers ?? []).map((server) => ({ url: server.url, status: statusOf(server), running: server.running })),
  });
  return [
    {
      ...common,
      method: "GET",
      id: "listUpstreams",
      summary: "List the upstream servers of the answering process",
      handle(c) {
        requireAdministrator(c, "reading the upstream servers");
        return c.json(list());
      },
    },
    {
      ...common,
      method: "PUT",
      id: "drainUpstream",
      summary: "Drain an upstream server before a restart, or resume it",
      description:
        "A drained server gets no further requests; it can be restarted once `running` is 0. Each process of the service has its own state.",
      body: drainUpstreamRequest,
      errors: [404],
      async handle(c) {
        requireAdministrator(c, "draining the upstream servers");
        const { value } = await readJson(c, "drainUpstream", work.bodies);
        const server = upstream?.servers.find(({ url }) => url === value.url);
        if (server === undefined)
          throw new NotFoundError(`The service has no upstream server '${value.url.slice(0, 200)}'. GET /v1/preview/upstreams lists them`, {
            param: "url",
          });
        server.isDrained = value.drained;
        return c.json(list());
      },
    },
  ];
}

/** Returns the status of a server: an administrator drains it, and failed requests show that it is down. */
function statusOf({ isDrained, isDown }: PooledServer): "up" | "down" | "drained" {
  if (isDrained) return "drained";
  return isDown ? "down" : "up";
}
