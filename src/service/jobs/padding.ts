import type { LossMetrics } from "../../engine/port.ts";

/** Share of the computed positions that held no token; 0 where the engine does not say. */
export function paddingShare({ positions = 0, padding = 0 }: Pick<LossMetrics, "positions" | "padding">): number {
  return positions === 0 ? 0 : padding / positions;
}
