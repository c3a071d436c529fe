import { DataError } from "../errors.ts";
import { trajectoryGroup as groupSchema } from "../schema/index.ts";
import type { RolloutException, Trajectory as WireTrajectory, TrajectoryGroup as WireTrajectoryGroup } from "../schema/index.ts";
import { deepFreeze } from "./freeze.ts";
import { statisticsOf, type GroupStatistics } from "./statistics.ts";
import { Trajectory, type Scalar } from "./trajectory.ts";

/** What a group is made of. */
export interface TrajectoryGroupInit {
  readonly trajectories: readonly Trajectory[];
  /** Rollouts that failed: kept as data. @default [] */
  readonly exceptions?: readonly RolloutException[] | undefined;
  /** @default {} */
  readonly metadata?: Readonly<Record<string, Scalar>> | undefined;
  /** @default {} */
  readonly metrics?: Readonly<Record<string, number | boolean>> | undefined;
  /** @default [] */
  readonly logs?: readonly string[] | undefined;
}

/** Rollouts of one scenario, scored against each other. Immutable; `JSON.stringify` gives the wire form, keys of other writers included. */
export class TrajectoryGroup {
  readonly trajectories: readonly Trajectory[];
  readonly exceptions: readonly RolloutException[];
  readonly metadata: Readonly<Record<string, Scalar>>;
  readonly metrics: Readonly<Record<string, number | boolean>>;
  readonly logs: readonly string[];
  /** Top-level keys that other tools wrote. */
  #others: Readonly<Record<string, unknown>> = {};

  constructor({ trajectories, exceptions = [], metadata = {}, metrics = {}, logs = [] }: TrajectoryGroupInit) {
    this.trajectories = Object.freeze([...trajectories]);
    this.exceptions = Object.freeze(exceptions.map((exception) => deepFreeze(structuredClone(exception))));
    this.metadata = Object.freeze({ ...metadata });
    this.metrics = Object.freeze({ ...metrics });
    this.logs = Object.freeze([...logs]);
    Object.freeze(this);
  }

  /**
   * Reads the wire form.
   *
   * @throws DataError `E_DATA` when the value does not fit.
   */
  static fromJSON(value: unknown): TrajectoryGroup {
    const result = groupSchema.safeParse(value);
    if (!result.success) {
      const issue = result.error.issues[0];
      throw new DataError(`Expected a trajectory group; at \`${issue?.path.join(".") || "(root)"}\`: ${issue?.message ?? "invalid"}`);
    }
    return TrajectoryGroup.#fromParts(result.data, (wire) => Trajectory.fromWire(wire));
  }

  /** Wraps a validated wire value that no one else holds, such as a freshly parsed line. Trajectories are frozen lazily. */
  static fromOwned(wire: WireTrajectoryGroup): TrajectoryGroup {
    return TrajectoryGroup.#fromParts(wire, (each) => Trajectory.fromOwned(each));
  }

  static #fromParts(wire: WireTrajectoryGroup, read: (wire: WireTrajectory) => Trajectory): TrajectoryGroup {
    const { trajectories, exceptions, metadata, metrics, logs, ...others } = wire;
    const group = new TrajectoryGroup({ trajectories: trajectories.map(read), exceptions, metadata, metrics, logs });
    group.#others = deepFreeze(others);
    return group;
  }

  /**
   * Returns a copy with some parts replaced, each as a whole. Every other part is shared, including keys that other tools wrote.
   *
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
    copy.#others = this.#others;
    return copy;
  }

  /** Rewards in order, failed rollouts left out. */
  get rewards(): number[] {
    return this.trajectories.map((trajectory) => trajectory.reward);
  }

  /** The wire form. */
  toJSON(): WireTrajectoryGroup {
    return {
      ...this.#others,
      trajectories: this.trajectories.map((trajectory) => trajectory.toJSON()),
      exceptions: [...this.exceptions],
      metadata: { ...this.metadata },
      metrics: { ...this.metrics },
      logs: [...this.logs],
    };
  }
}

/** Groups in order, with statistics over all of them. */
export type TrajectoryGroups = readonly TrajectoryGroup[] & { readonly stats: GroupStatistics };

/** Gives a list of groups its `stats`; computed when first read. The argument is copied. */
export function trajectoryGroups(groups: Iterable<TrajectoryGroup>): TrajectoryGroups {
  const list = [...groups];
  let stats: GroupStatistics | undefined;
  // Not enumerable: the list prints and serialises as the plain array it is.
  Object.defineProperty(list, "stats", { get: () => (stats ??= statisticsOf(list)) });
  return Object.freeze(list) as TrajectoryGroups;
}
