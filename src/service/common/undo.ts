/** Reversal of the steps of a start, also at the shutdown of the service. */
import { messageOf } from "../../base/util/values.ts";
import type { ServiceLogger } from "./logger.ts";

/** Reverts one step of the service's start. */
export type Undo = () => void | Promise<void>;

/** Reverts steps, the last one first. A failure is logged, and the other steps are reverted, too. */
export async function undoAll(steps: readonly Undo[], logger: ServiceLogger): Promise<void> {
  for (const step of [...steps].reverse()) {
    try {
      await step();
    } catch (error) {
      logger.warn("A step of the shutdown failed", { error: messageOf(error) });
    }
  }
}
