/** The optional package prom-client. */
import type * as prom from "prom-client";
import { ConfigError } from "../../base/errors.ts";

/** Part of prom-client that the metrics use. */
export type PromClient = Pick<typeof prom, "Counter" | "Gauge" | "Histogram" | "Registry" | "collectDefaultMetrics">;

/** Loads prom-client. @throws ConfigError `E_CONFIG` if it is not installed. */
export async function loadPromClient(): Promise<PromClient> {
  try {
    return (await import("prom-client")).default;
  } catch (cause) {
    throw new ConfigError("Metrics need the package prom-client, which cannot be loaded. Run `npm install prom-client`", {
      cause,
      param: "metrics",
    });
  }
}
