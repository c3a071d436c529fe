import { NonFiniteError } from "../../errors.ts";

/** Metrics that are optional for an engine. NaN means not reported. */
const OPTIONAL: ReadonlySet<string> = new Set(["entropy", "policy/entropy", "grad_norm"]);

/**
 * Returns metrics that can be serialized as JSON, without the optional metrics that the engine does not report.
 *
 * @throws NonFiniteError `E_NON_FINITE` naming any other metric that is NaN or infinite.
 */
export function knownMetrics(metrics: Readonly<Record<string, number>>): Record<string, number> {
  const known = Object.entries(metrics).filter(([name, value]) => !(OPTIONAL.has(name) && Number.isNaN(value)));
  for (const [name, value] of known)
    if (!Number.isFinite(value)) throw new NonFiniteError(`Expected the metric "${name}" to be finite, got ${value}`);
  return Object.fromEntries(known);
}
