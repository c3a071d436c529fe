/** Group of rollouts of one scenario as an immutable object, and lists of groups with statistics. */

import { DataError } from "../errors.ts";
import { trajectoryGroup as groupSchema } from "../schema/index.ts";
import type { RolloutException, Trajectory as WireTrajectory, TrajectoryGroup as WireTrajectoryGroup } from "../schema/index.ts";
import { firstIssue } from "../util/validation.ts";
import { deepFreeze } from "./freeze.ts";
import { statisticsOf, type GroupStatistics } from "./statistics.ts";
import { Trajectory, type Scalar } from "./trajectory.ts";

/** Key that marks groups of every copy of the package. */
const MARK = Symbol.for("whetstone.trajectory-group");

/** Constructor arguments of {@link TrajectoryGroup}. */
export interface TrajectoryGroupInit {
  /** Finished rollouts; failed ones are in `exceptions`. */
  readonly trajectories: readonly Trajectory[];
  /** Failed rollouts, kept as data. @default [] */
  readonly exceptions?: readonly RolloutException[] | undefined;
  /** Metadata of the group by name, e.g. its scenario. @default {} */
  readonly metadata?: Readonly<Record<string, Scalar>> | undefined;
  /** Metrics of the group as a whole, by name. @default {} */
  readonly metrics?: Readonly<Record<string, number | boolean>> | undefined;
  /** Log lines of the group, oldest first. @default [] */
  readonly logs?: readonly string[] | undefined;
}

/**
 * Rollouts of one scenario, scored relative to each other. Immutable. `JSON.stringify` gives the wire form, including keys that other tools
 * wrote.
 *
 * @example
 * ```ts
 * const group = new TrajectoryGroup({ trajectories: groups.flatMap(({ trajectories }) => trajectories), metadata: { scenario: "a" } });
 * const copy = TrajectoryGroup.fromJSON(JSON.parse(JSON.stringify(group)));
 * console.log(copy.rewards);
 * ```
 */
export class TrajectoryGroup {
  /** Successful rollouts in order. */
  readonly trajectories: readonly Trajectory[];
  /** Failed rollouts, kept as data. */
  readonly exceptions: readonly RolloutException[];
  /** Labels of the group by name, such as `scenario_id`. */
  readonly metadata: Readonly<Record<string, Scalar>>;
  /** Measurements of the whole group by name. */
  readonly metrics: Readonly<Record<string, number | boolean>>;
  /** Lines of text about the whole group. */
  readonly logs: readonly string[];
  /** Top-level keys of the wire form that the schema does not know, such as keys that other tools wrote. */
  #unknownKeys: Readonly<Record<string, unknown>> = {};

  /**
   * Copies the given parts and freezes the copies; trajectories are shared.
   *
   * @param init - Trajectories, exceptions, metadata, metrics and log lines.
   */
  constructor({ trajectories, exceptions = [], metadata = {}, metrics = {}, logs = [] }: TrajectoryGroupInit) {
    this.trajectories = Object.freeze([...trajectories]);
    this.exceptions = Object.freeze(exceptions.map((exception) => deepFreeze(structuredClone(exception))));
    this.metadata = Object.freeze({ ...metadata });
    this.metrics = Object.freeze({ ...metrics });
    this.logs = Object.freeze([...logs]);
    Object.freeze(this);
  }

  /**
   * Returns whether `value` is a {@link TrajectoryGroup}, also one from another copy of the package.
   *
   * @param value - Any value.
   * @returns true for a group of rollouts.
   */
  static isInstance(value: unknown): value is TrajectoryGroup {
    return typeof value === "object" && value !== null && MARK in value;
  }

  /**
   * Mark by which {@link isInstance} recognizes objects of another copy of the package.
   *
   * @internal
   */
  get [MARK](): true {
    return true;
  }

  /**
   * Parses the wire form.
   *
   * @param value - Value parsed from JSON.
   * @returns The group; its trajectories are frozen.
   * @throws DataError `E_DATA` if the value does not match the schema.
   */
  static fromJSON(value: unknown): TrajectoryGroup {
    const { data, error } = groupSchema.safeParse(value);
    if (error !== undefined) throw new DataError(`Expected a trajectory group; ${firstIssue(error)}`);
    return TrajectoryGroup.#fromParts(data, (wire) => Trajectory.fromWire(wire));
  }

  /**
   * Wraps a validated wire value that no other code holds, such as a freshly parsed line. Trajectories are frozen lazily.
   *
   * @internal
   */
  static fromOwned(wire: WireTrajectoryGroup): TrajectoryGroup {
    return TrajectoryGroup.#fromParts(wire, (each) => Trajectory.fromOwned(each));
  }

  /** Creates a group from its wire form. @param read - Converts a trajectory. */
  static #fromParts(wire: WireTrajectoryGroup, read: (wire: WireTrajectory) => Trajectory): TrajectoryGroup {
    const { trajectories, exceptions, metadata, metrics, logs, ...unknownKeys } = wire;
    const group = new TrajectoryGroup({ trajectories: trajectories.map(read), exceptions, metadata, metrics, logs });
    group.#unknownKeys = deepFreeze(unknownKeys);
    return group;
  }

  /**
   * Returns a copy with some parts replaced, each as a whole. Every other part is shared, including keys that other tools wrote.
   *
   * @param changes - Parts to replace; absent parts stay unchanged.
   * @returns The changed copy.
   * @example
   * ```ts
   * const halved = group.with({ trajectories: group.trajectories.map((each) => each.with({ reward: each.reward / 2 })) });
   * ```
   */
  with(changes: Partial<TrajectoryGroupInit>): TrajectoryGroup {
    const {
      trajectories = this.trajectories,
      exceptions = this.exceptions,
      metadata = this.metadata,
      metrics = this.metrics,
      logs = this.logs,
    } = changes;
    const copy = new TrajectoryGroup({ trajectories, exceptions, metadata, metrics, logs });
    copy.#unknownKeys = this.#unknownKeys;
    return copy;
  }

  /** Rewards of the trajectories in order; failed rollouts are excluded. */
  get rewards(): number[] {
    return this.trajectories.map((trajectory) => trajectory.reward);
  }

  /** Returns the wire form. */
  toJSON(): WireTrajectoryGroup {
    return {
      ...this.#unknownKeys,
      trajectories: this.trajectories.map((trajectory) => trajectory.toJSON()),
      exceptions: [...this.exceptions],
      metadata: { ...this.metadata },
      metrics: { ...this.metrics },
      logs: [...this.logs],
    };
  }
}

/** Ordered groups with statistics over all of them, computed on first access of `stats`. */
export type TrajectoryGroups = readonly TrajectoryGroup[] & {
  /** Statistics over all groups, computed on first access. */
  readonly stats: GroupStatistics;
};

/**
 * Returns a frozen copy of a list of groups with `stats`, which are computed on first access.
 *
 * @param groups - Groups to copy, in order.
 * @returns The groups with `stats`, a {@link GroupStatistics}.
 * @example
 * ```ts
 * const { stats } = trajectoryGroups(groups);
 * console.log(stats.rewardMean.mean, stats.exceptionRate);
 * ```
 */
export function trajectoryGroups(groups: Iterable<TrajectoryGroup>): TrajectoryGroups {
  const list = [...groups];
  let stats: GroupStatistics | undefined;
  // Not enumerable, so that the list prints and serializes as a plain array.
  Object.defineProperty(list, "stats", { get: () => (stats ??= statisticsOf(list)) });
  return Object.freeze(list) as TrajectoryGroups;
}
