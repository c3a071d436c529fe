/** Assignment of the groups of a run to its environments. */

/** Environment of a group, and the number of the group within that environment. */
export interface ScheduledGroup {
  /** Position of the environment in the run's list. */
  readonly environment: number;
  /** Number of earlier groups of the environment. */
  readonly index: number;
}

/**
 * Fixed order in which the groups of a run are assigned to its environments: group `n` belongs to the environment with the largest
 * difference between its share of `n + 1` groups and its number of groups so far. Of equal differences, the first environment in the list
 * wins.
 */
export class EnvironmentSchedule {
  /** Share of each environment; the sum is 1. */
  readonly #shares: readonly number[];
  /** Number of assigned groups of each environment. */
  readonly #counts: number[];
  /** Assigned groups, by number of the group. */
  readonly #assigned: ScheduledGroup[] = [];

  /** @param weights - Weight of each environment, above 0. */
  constructor(weights: readonly number[]) {
    const totalWeight = weights.reduce((sum, weight) => sum + weight, 0);
    this.#shares = weights.map((weight) => weight / totalWeight);
    this.#counts = weights.map(() => 0);
  }

  /** Returns the assignment of group `n` of the run, counted from 0. */
  at(n: number): ScheduledGroup {
    while (this.#assigned.length <= n) this.#assignNext();
    return this.#assigned[n] as ScheduledGroup;
  }

  /** Assigns the next group. */
  #assignNext(): void {
    const deficits = this.#shares.map((share, index) => share * (this.#assigned.length + 1) - (this.#counts[index] as number));
    const environment = deficits.indexOf(Math.max(...deficits));
    const index = this.#counts[environment] as number;
    this.#assigned.push({ environment, index });
    this.#counts[environment] = index + 1;
  }
}
