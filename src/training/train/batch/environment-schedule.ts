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
  readonly #shares: readonly number[];
  readonly #counts: number[];
  readonly #assigned: ScheduledGroup[] = [];

  /** @param weights - Weight of each environment, above 0. */
  constructor(weights: readonly number[]) {
    const sum = weights.reduce((total, weight) => total + weight, 0);
    this.#shares = weights.map((weight) => weight / sum);
    this.#counts = weights.map(() => 0);
  }

  /** Returns the assignment of group `n` of the run, counted from 0. */
  at(n: number): ScheduledGroup {
    while (this.#assigned.length <= n) this.#assignNext();
    return this.#assigned[n] as ScheduledGroup;
  }

  #assignNext(): void {
    const deficits = this.#shares.map((share, index) => share * (this.#assigned.length + 1) - (this.#counts[index] as number));
    const environment = deficits.indexOf(Math.max(...deficits));
    const index = this.#counts[environment] as number;
    this.#assigned.push({ environment, index });
    this.#counts[environment] = index + 1;
  }
}
