/** Link from a rollout to the trajectory builders that it creates, so that the runner keeps the turns of a rollout that throws. */

import { AsyncLocalStorage } from "node:async_hooks";
import type { TrajectoryBuilder } from "./builder.ts";

/** Builders created in the async context of a rollout, in order of creation. */
const scopes = new AsyncLocalStorage<TrajectoryBuilder[]>();

/** Runs a rollout. Every trajectory builder that the rollout creates is added to `builders`, also if the rollout throws. */
export function recordBuilders<T>(builders: TrajectoryBuilder[], run: () => T): T {
  return scopes.run(builders, run);
}

/** Adds a new builder to the list of {@link recordBuilders} that encloses the call; does nothing outside of it. */
export function addToScope(builder: TrajectoryBuilder): void {
  scopes.getStore()?.push(builder);
}
