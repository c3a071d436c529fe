/** Metrics without those that the engine does not report: it gives NaN for them, which no JSON carries. */
export function knownMetrics(metrics: Readonly<Record<string, number>>): Record<string, number> {
  return Object.fromEntries(Object.entries(metrics).filter(([, value]) => !Number.isNaN(value)));
}
