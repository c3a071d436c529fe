import type { LossMetrics } from "../../engine/port.ts";

/** Returns the fraction of computed positions that were padding; 0 if the engine does not report it. */
export function paddingShare({ positions = 0, padding = 0 }: Pick<LossMetrics, "positions" | "padding">): number {
  return positions === 0 ? 0 : padding / positions;
}
