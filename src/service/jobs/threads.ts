import type { LossMetrics } from "../../engine/port.ts";

/** Returns metrics of the trainer's thread count and the throughput measured per candidate; empty if the engine does not report them. */
export function threadMetrics({ threads }: Pick<LossMetrics, "threads">): Record<string, number> {
  if (threads === undefined) return {};
  const rates = threads.rates.map((rate) => [`engine/threads_${rate.threads}_tokens_per_second`, rate.tokensPerSecond]);
  return { "engine/threads": threads.threads, ...Object.fromEntries(rates) };
}
