import type { LossMetrics } from "../../engine/port.ts";

/** With how many threads the engine trains and what it measured to choose them; nothing where it does not say. */
export function threadMetrics({ threads }: Pick<LossMetrics, "threads">): Record<string, number> {
  if (threads === undefined) return {};
  const rates = threads.rates.map((rate) => [`engine/threads_${rate.threads}_tokens_per_second`, rate.tokensPerSecond]);
  return { "engine/threads": threads.threads, ...Object.fromEntries(rates) };
}
