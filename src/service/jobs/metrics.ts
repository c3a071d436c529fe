/** Metrics of training steps: the ones that an engine may leave out, and the ones about its device and threads. */
import type { LossMetrics } from "../../engine/port.ts";
import { NonFiniteError } from "../../base/errors.ts";

/** Metrics that are optional for an engine. NaN means not reported. */
const OPTIONAL_METRICS: ReadonlySet<string> = new Set(["entropy", "policy/entropy", "grad_norm"]);

/**
 * Returns metrics that can be serialized as JSON, without the optional metrics that the engine does not report.
 *
 * @throws NonFiniteError `E_NON_FINITE` naming any other metric that is NaN or infinite.
 */
export function knownMetrics(metrics: Readonly<Record<string, number>>): Record<string, number> {
  const reported = Object.entries(metrics).filter(([name, value]) => !(OPTIONAL_METRICS.has(name) && Number.isNaN(value)));
  for (const [name, value] of reported)
    if (!Number.isFinite(value)) throw new NonFiniteError(`Expected the metric "${name}" to be finite, got ${value}`);
  return Object.fromEntries(reported);
}

/** Returns the fraction of computed positions that were padding; 0 if the engine does not report it. */
export function paddingShare({ positions = 0, padding = 0 }: Pick<LossMetrics, "positions" | "padding">): number {
  return positions === 0 ? 0 : padding / positions;
}

/** Returns metrics of the device's memory and of the bytes copied to and from it; empty if the engine does not report them. */
export function deviceMetrics({ device }: Pick<LossMetrics, "device">): Record<string, number> {
  if (device === undefined) return {};
  return {
    "engine/device_bytes": device.bytes,
    "engine/uploaded_bytes": device.uploadedBytes,
    "engine/downloaded_bytes": device.downloadedBytes,
  };
}

/** Returns metrics of the trainer's thread count and the throughput measured per candidate; empty if the engine does not report them. */
export function threadMetrics({ threads }: Pick<LossMetrics, "threads">): Record<string, number> {
  if (threads === undefined) return {};
  const rates = threads.rates.map((rate) => [`engine/threads_${rate.threads}_tokens_per_second`, rate.tokensPerSecond]);
  return { "engine/threads": threads.threads, ...Object.fromEntries(rates) };
}
