/** The route of metrics. */
import { NotFoundError } from "../../base/errors.ts";
import { requireAdministrator } from "../http/principal.ts";
import type { ServiceMetrics } from "../observability/metrics.ts";
import type { Route } from "../openapi/route.ts";

/** Creates `GET /metrics`: the metrics of the service for Prometheus. @param metrics - Metrics; null if they are off. */
export function metricsRoutes(metrics: ServiceMetrics | null): Route[] {
  return [
    {
      method: "GET",
      path: "/metrics",
      id: "getMetrics",
      tag: "Service",
      access: ["admin"],
      isExtension: true,
      summary: "Read the metrics of the service in the text format of Prometheus",
      answer: { description: "The metrics.", content: { "text/plain": "text" } },
      errors: [404],
      async handle(c) {
        requireAdministrator(c, "reading the metrics of all entities");
        if (metrics === null)
          throw new NotFoundError("This service collects no metrics. Start it with `--metrics`, or with the option `metrics: true`");
        return new Response(await metrics.text(), { headers: { "content-type": metrics.contentType } });
      },
    },
  ];
}
