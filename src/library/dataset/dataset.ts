/** Lazy sequence of trajectories with chained stages. `operators.ts` implements the stages; this class validates their arguments. */
import { ConfigError } from "../../base/errors.ts";
import { refuse } from "../../base/util/values.ts";
import type { Scalar, Trajectory } from "../../base/trajectory/index.ts";
import { normalizedRewards, scored, type RewardLike } from "../../base/trajectory/scoring.ts";
import type { Identity } from "./keys.ts";
import { balanced, deduped, filtered, isInFraction, mapped, sampled, shuffled, taken } from "./operators.ts";
import { checkOptionCount, checkedTrajectory, checkedSource } from "./source.ts";

/** Options of {@link Dataset.shuffle}. */
export interface ShuffleOptions {
  /**
   * Number of trajectories held in memory, at least 1. If it is at least the size of the dataset, every order is equally likely.
   *
   * @default 1000
   */
  readonly bufferSize?: number | undefined;
  /** Random seed, any integer. @default 0 */
  readonly seed?: number | bigint | undefined;
}

/** Options of {@link Dataset.dedupe}. */
export interface DedupeOptions {
  /** Identity under which trajectories count as duplicates. A function must not return undefined. */
  readonly by: Identity;
}

/** Options of {@link Dataset.balance}. */
export interface BalanceOptions {
  /** Returns the class of a trajectory. Trajectories for which it returns undefined are a class, too. */
  readonly by: (trajectory: Trajectory) => Scalar | undefined;
  /** Maximum number of trajectories kept per class, at least 1. */
  readonly max: number;
}

/** Options of {@link Dataset.split}. */
export interface SplitOptions {
  /** Expected fraction of trajectories in the validation set, in (0, 1). */
  readonly validation: number;
  /** Random seed, any integer. @default 0 */
  readonly seed?: number | bigint | undefined;
  /** Identity that must not occur in both sets. A function must not return undefined. @default "messages" */
  readonly by?: Identity | undefined;
}

/** Training and validation set without a common trajectory. */
export interface Split {
  /** Trajectories outside the validation set. */
  readonly train: Dataset;
  /** Trajectories of the validation set. */
  readonly validation: Dataset;
}

/** Lookup of scenarios and a signal for {@link Dataset.rescore}. */
export interface DatasetRescoreOptions<S> {
  /** Returns the scenario of a stored trajectory for rewards that read it, e.g. found by `metadata.scenario_id`. @default undefined */
  readonly scenario?: ((trajectory: Trajectory) => S | Promise<S>) | undefined;
  /** Ends the iteration, which then throws the signal's reason. */
  readonly signal?: AbortSignal | undefined;
}

/** Arguments of {@link Dataset.rescore} after `rewards`; the option `scenario` is required if the rewards read a scenario. */
export type RescoreArguments<S> = undefined extends S
  ? [options?: DatasetRescoreOptions<S>]
  : [options: DatasetRescoreOptions<S> & Required<Pick<DatasetRescoreOptions<S>, "scenario">>];

/** Name of the stage `rescore` in error messages. */
const RESCORE = "`Dataset.rescore`";

/**
 * Lazy sequence of trajectories. Every stage passes on one trajectory at a time, so a pipeline over any number of files holds only a few in
 * memory. Nothing is read before iteration starts, and each iteration starts from the beginning.
 *
 * @example
 * ```ts
 * import { readTrajectories, writeTrajectories } from "whetstone/dataset";
 *
 * const best = readTrajectories("runs/*\/trajectories/train/*.jsonl")
 *   .filter((t) => t.reward >= 0.9)
 *   .map((t) => t.with({ metadata: { source: "june" } }))
 *   .dedupe({ by: "messages" })
 *   .shuffle({ seed: 7 })
 *   .balance({ by: (t) => t.metadata["scenario_id"], max: 4 })
 *   .sample(0.5, 7)
 *   .take(1000);
 * const { train, validation } = best.split({ validation: 0.05, seed: 7 });
 * await writeTrajectories("best.jsonl.gz", train);
 * for await (const t of validation) console.log(t.reward, t.lastText);
 * ```
 */
export class Dataset implements AsyncIterable<Trajectory> {
  readonly #records: AsyncIterable<Trajectory>;

  private constructor(records: AsyncIterable<Trajectory>) {
    this.#records = records;
  }

  /**
   * Creates a dataset from trajectories in memory or from another source.
   *
   * @param trajectories - Source. A generator can be read only once, so a dataset from a generator cannot be split.
   * @returns Dataset. A second iteration over a generator throws ConflictError `E_CONFLICT`.
   * @throws ArgumentError `E_ARGUMENT` while iterating, for an item that is not a trajectory.
   * @example
   * ```ts
   * const sorted = Dataset.from(groups.flatMap(({ trajectories }) => trajectories).sort((a, b) => b.reward - a.reward));
   * ```
   */
  static from(trajectories: Iterable<Trajectory> | AsyncIterable<Trajectory>): Dataset {
    return new Dataset(checkedSource(trajectories, checkedTrajectory));
  }

  /**
   * Keeps the trajectories for which `keep` returns true.
   *
   * @param keep - Called with each trajectory.
   * @returns Dataset of the kept trajectories.
   */
  filter(keep: (trajectory: Trajectory) => boolean | Promise<boolean>): Dataset {
    return this.#withStage((records) => filtered(records, keep));
  }

  /**
   * Replaces each trajectory by the result of `change`, e.g. `(t) => t.with({ metadata: { source: "june" } })`.
   *
   * @param change - Called with each trajectory; must return a trajectory.
   * @returns Dataset of the results. Iterating throws ArgumentError `E_ARGUMENT` for a result that is not a trajectory.
   */
  map(change: (trajectory: Trajectory) => Trajectory | Promise<Trajectory>): Dataset {
    return this.#withStage((records) => mapped(records, async (trajectory) => checkedTrajectory(await change(trajectory))));
  }

  /**
   * Keeps the first `count` trajectories and reads no further.
   *
   * @param count - Integer of at least 0.
   * @returns Dataset of the kept trajectories.
   * @throws ArgumentError `E_ARGUMENT` for an invalid count.
   */
  take(count: number): Dataset {
    checkOptionCount(count, { param: "count", min: 0 });
    return this.#withStage((records) => taken(records, count));
  }

  /**
   * Keeps each trajectory with probability `fraction`. The same seed keeps the same positions.
   *
   * @param fraction - Probability, in [0, 1].
   * @param seed - Any integer.
   * @returns Dataset of the kept trajectories.
   * @throws ArgumentError `E_ARGUMENT` for a fraction outside [0, 1] or a seed that is not an integer.
   */
  sample(fraction: number, seed: number | bigint = 0): Dataset {
    if (typeof fraction !== "number" || !(fraction >= 0 && fraction <= 1)) refuse("fraction", "a number in [0, 1]", fraction);
    const checkedSeed = toSeed(seed);
    return this.#withStage((records) => sampled(records, fraction, checkedSeed));
  }

  /**
   * Shuffles through a buffer: once it is full, each trajectory read takes the place of a random one, which is passed on.
   *
   * @param options - Buffer size and seed.
   * @returns Dataset in the new order.
   * @throws ArgumentError `E_ARGUMENT` for a buffer size below 1 or a seed that is not an integer.
   */
  shuffle({ bufferSize = 1000, seed = 0 }: ShuffleOptions = {}): Dataset {
    checkOptionCount(bufferSize, { param: "bufferSize", min: 1 });
    const checkedSeed = toSeed(seed);
    return this.#withStage((records) => shuffled(records, bufferSize, checkedSeed));
  }

  /**
   * Removes duplicates: keeps the first trajectory of each identity. Stores 16 bytes per distinct trajectory.
   *
   * @param options - Identity.
   * @returns Dataset without duplicates. Iterating throws ArgumentError `E_ARGUMENT` if a function `by` returns undefined.
   * @throws ArgumentError `E_ARGUMENT` for an invalid identity.
   */
  dedupe({ by }: DedupeOptions): Dataset {
    checkIdentity(by);
    return this.#withStage((records) => deduped(records, by));
  }

  /**
   * Keeps the first `max` trajectories of each class. Shuffle before for a random selection.
   *
   * @param options - Class of a trajectory, and the maximum per class.
   * @returns Dataset of the kept trajectories.
   * @throws ArgumentError `E_ARGUMENT` for a `max` below 1.
   */
  balance({ by, max }: BalanceOptions): Dataset {
    checkOptionCount(max, { param: "max", min: 1 });
    return this.#withStage((records) => balanced(records, by, max));
  }

  /**
   * Recomputes the reward of each trajectory as `Σ weight·value` over `rewards`, and stores each value without its weight as the metric
   * `reward/<name>`. Metrics of earlier rewards are removed, because they no longer contribute to the total. Nothing is sampled.
   *
   * @param rewards - Rewards of an environment, or named functions; at least one.
   * @param options - Lookup of the scenario, and a signal.
   * @returns Dataset with the new rewards. Iterating throws RewardError `E_REWARD` for the first reward that throws or returns neither a
   *   finite number nor a boolean. It also throws the signal's reason, and errors of `scenario` unchanged.
   * @throws ConfigError `E_CONFIG` for an empty list, a reward without a name or function, a weight that is not finite, or a duplicate name.
   * @example
   * ```ts
   * const shorter = Dataset.from(group.trajectories).rescore([{ name: "short", score: ({ text }) => text.length < 100 }]);
   * ```
   */
  rescore<S = unknown>(rewards: readonly RewardLike<S>[], ...[options = {}]: RescoreArguments<S>): Dataset {
    const { scenario: scenarioOf, signal = new AbortController().signal } = options;
    const namedRewards = normalizedRewards(rewards, RESCORE);
    if (namedRewards.length === 0) throw new ConfigError(`Expected ${RESCORE} to get at least one reward`, { param: "rewards" });
    return this.#withStage((records) =>
      mapped(records, async (trajectory, index) => {
        signal.throwIfAborted();
        // The types require the option for rewards that read a scenario.
        const scenario = (await scenarioOf?.(trajectory)) as S;
        const id = trajectory.metadata["scenario_id"];
        const subject = () => `${RESCORE}, trajectory at index ${index}${id === undefined ? "" : ` with scenario \`${id}\``}`;
        return scored(trajectory, { rewards: namedRewards, scenario, subject, signal });
      }),
    );
  }

  /**
   * Splits into a training and a validation set by a hash of each trajectory's identity and the seed. The assignment depends neither on the
   * order nor on other trajectories, and trajectories of equal identity are always in the same set.
   *
   * Both sets read the source and run every earlier stage separately. Put expensive stages after the split, or write to a file first.
   *
   * @param options - Fraction of the validation set, seed and identity.
   * @returns The two datasets. Iterating throws ArgumentError `E_ARGUMENT` if a function `by` returns undefined.
   * @throws ArgumentError `E_ARGUMENT` for a fraction outside (0, 1), or an invalid `seed` or `by`.
   */
  split({ validation, seed = 0, by = "messages" }: SplitOptions): Split {
    if (typeof validation !== "number" || !(validation > 0 && validation < 1)) refuse("validation", "a number in (0, 1)", validation);
    checkIdentity(by);
    const assignment = { by, seed: toSeed(seed) };
    return {
      train: this.filter((trajectory) => !isInFraction(trajectory, validation, assignment)),
      validation: this.filter((trajectory) => isInFraction(trajectory, validation, assignment)),
    };
  }

  /**
   * Reads all trajectories into memory.
   *
   * @returns the trajectories in order.
   * @throws DataError `E_DATA`, ArgumentError `E_ARGUMENT` or any other error of the source and the stages.
   * @example
   * ```ts
   * import { readTrajectories } from "whetstone/dataset";
   *
   * const all = await readTrajectories("best.jsonl.gz").toArray();
   * ```
   */
  async toArray(): Promise<Trajectory[]> {
    const all: Trajectory[] = [];
    for await (const trajectory of this) all.push(trajectory);
    return all;
  }

  /**
   * Starts an iteration: reads the source anew and runs every stage on it.
   *
   * @returns the trajectories in order.
   * @throws ConflictError `E_CONFLICT` for a second iteration over a generator.
   */
  [Symbol.asyncIterator](): AsyncIterator<Trajectory, void, undefined> {
    return this.#records[Symbol.asyncIterator]() as AsyncIterator<Trajectory, void, undefined>;
  }

  /** Returns a dataset of the results of `stage`, which runs anew for each iteration. */
  #withStage(stage: (records: AsyncIterable<Trajectory>) => AsyncIterable<Trajectory>): Dataset {
    return new Dataset({ [Symbol.asyncIterator]: () => stage(this.#records)[Symbol.asyncIterator]() });
  }
}

/** Returns a seed as a bigint. @throws ArgumentError `E_ARGUMENT` if it is not an integer. */
function toSeed(seed: number | bigint): bigint {
  if (typeof seed === "bigint" || Number.isSafeInteger(seed)) return BigInt(seed);
  refuse("seed", "an integer", seed);
}

/** @throws ArgumentError `E_ARGUMENT` if `by` is neither a known identity nor a function. */
function checkIdentity(by: Identity): void {
  if (by === "messages" || by === "trajectory" || typeof by === "function") return;
  refuse("by", '"messages", "trajectory" or a function', by);
}
