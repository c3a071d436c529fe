import { NonFiniteError } from "../../errors.ts";

/** Metrics that not every engine reports; NaN stands for one that is not known. */
const OPTIONAL: ReadonlySet<string> = new Set(["entropy", "policy/entropy", "grad_norm"]);

/**
 * Returns metrics for JSON, which has neither NaN nor infinity: without those that the engine does not report.
 *
 * @throws NonFiniteError `E_NON_FINITE` naming any other metric that is NaN or infinite.
 */
export function knownMetrics(metrics: Readonly<Record<string, number>>): Record<string, number> {
  const known = Object.entries(metrics).filter(([name, value]) => !(OPTIONAL.has(name) && Number.isNaN(value)));
  for (const [name, value] of known)
    if (!Number.isFinite(value)) throw new NonFiniteError(`Expected the metric "${name}" to be finite, got ${value}`);
  return Object.fromEntries(known);
}
